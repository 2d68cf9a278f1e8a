"""The sentences that stories are made of."""

OPENINGS = (
    "Once upon a time, there was {a_size} {kind} named {hero}.",
    "Once upon a time, {a_trait} {kind} named {hero} lived near the {place}.",
    "Once upon a time, {hero} the {kind} lived in a house by the {place}.",
    "Once upon a time, in {a_size} house near the {place}, there lived {a_kind} named {hero}.",
    "There once was {a_trait} {kind} whose name was {hero}.",
    "{hero} was {a_trait} {kind} who lived beside the {place}.",
    "One {weather} morning, {a_kind} named {hero} woke up very early.",
    "Long ago, {a_size} {kind} called {hero} lived at the edge of the {place}.",
    "In {a_size} village by the {place} lived {a_kind} called {hero}.",
    "Everybody at the {place} knew {hero}, the {trait} {kind}.",
)
LIKES = (
    "{hero} loved {their} {color} {thing} more than anything.",
    "{They} liked to eat {food} and to look at the clouds.",
    "Every day {they} went to the {place} with {their} best friend {friend}.",
    "{They} had {number} brothers and {a_color} {thing}.",
    "People said that {hero} was the most {trait} {kind} in the land.",
    "{Their} friend was {a_size} {fkind} named {friend}.",
    "At night {they} dreamed of {a_color} {thing}.",
)

# A plot is a row of beats; one sentence or two of each beat is told.
LOST = (
    (
        "One day, {hero} could not find {their} {color} {thing}.",
        "One {weather} day, the {color} {thing} was gone.",
        'One morning, {hero} said, "Where is my {thing}?"',
    ),
    (
        "{They} looked under the bed, behind the door and in the {place}.",
        "{hero} searched the {place} for {number} hours, but there was nothing.",
        'Then {friend} the {fkind} came by and asked, "What are you looking for?"',
        "{They} asked {friend} the {fkind} for help.",
    ),
    (
        '"I saw something {color} near the {place}," said {friend}.',
        "Together {hero} and {friend} walked to the old {tree} tree.",
        '{friend} said, "Let us look again, but slowly."',
    ),
    (
        "There, under {a_size} {tree} tree, lay the {thing}.",
        "At last {they} saw the {thing} in the grass.",
        "A bird had carried the {thing} into its nest, and now it gave it back.",
    ),
)
STORM = (
    (
        "One day, {a_size} storm came over the {place}.",
        "One evening, the sky turned black and the wind began to blow.",
    ),
    (
        "The rain fell for {number} days, and the water rose.",
        "The wind broke {a_tree} tree, and it fell across the road.",
        "{hero} heard a voice that called for help.",
    ),
    (
        "It was {friend} the {fkind}, who sat on a rock in the water.",
        '"Help me!" cried {friend} the {fkind}. "I cannot swim!"',
        "Out there stood {friend} the {fkind}, wet and cold.",
    ),
    (
        "{hero} took a rope and pulled {friend} to the land.",
        "{They} opened the door and gave {friend} some {food}.",
        "{hero} used the {color} {thing} to bring {friend} home.",
    ),
)
SHARE = (
    (
        "One day, {hero} made a lot of {food} for the feast.",
        "One {weather} afternoon, {they} sat at the {place} with {their} {food}.",
    ),
    (
        "Then {friend} the {fkind} came, who had not eaten for {number} days.",
        'A hungry {fkind} named {friend} asked, "May I have some {food}?"',
    ),
    (
        "At first {hero} did not want to share.",
        '{hero} thought for a while and said, "There is enough for two."',
        '"It is mine," said {hero}, but then {they} saw how thin {friend} was.',
    ),
    (
        "So {they} gave half of the {food} to {friend}.",
        "They sat down under {a_tree} tree and ate together.",
        "In return, {friend} gave {them} {a_color} {thing}.",
    ),
)
RACE = (
    (
        "One day, there was a race from the {place} to the {place2}.",
        '"I am faster than you!" said {friend} the {fkind} to {hero}.',
    ),
    (
        "All the animals came to watch, and a {weather} wind was blowing.",
        "They ran past the {place} and over {number} hills.",
        "{friend} was fast, but {hero} did not give up.",
    ),
    (
        "Near the end, {friend} fell over {a_size} stone.",
        "Just before the end, {friend} stopped to eat some {food}.",
    ),
    (
        "{hero} stopped and helped {friend} to stand up.",
        '"We can finish together," said {hero}, and so they did.',
        "{hero} won the race and got {a_color} {thing}.",
    ),
)
DOOR = (
    (
        "One day, {hero} found {a_size} door in the {place}.",
        "One {weather} night, {they} saw a light in the {place}.",
    ),
    (
        "The door was locked, and on it was a picture of {a_fkind}.",
        '"Who is there?" asked a deep voice.',
        'Beside it sat {a_fkind} who said, "Only a {trait} heart may enter."',
    ),
    (
        '"I am {hero}," said {hero}, "and I am not afraid."',
        "{hero} knocked {number} times and waited.",
        "{They} tried {number} keys, and the last one was the right one.",
    ),
    (
        "Behind the door there was a room full of {color} light.",
        "Inside lay {a_color} {thing}, and {hero} took it home.",
        "Inside lived {a_size} {fkind} named {friend}, who had waited for a friend.",
    ),
)
BUILD = (
    (
        "One day, {hero} wanted to build a boat.",
        '"I will build a bridge over the water," said {hero} one {weather} day.',
        "One spring, {they} began to build a house for the birds.",
    ),
    (
        "{They} took a hammer, {number} nails and some {tree} wood.",
        '"That will never work," said {friend} the {fkind}.',
    ),
    (
        "The first try broke, and so did the second.",
        "{hero} worked for {number} days without a rest.",
        "{friend} felt sorry and came to help with a saw.",
    ),
    (
        "In the end it was strong and {color}, and everybody wanted to see it.",
        "When it was ready, {hero} painted it {color}.",
    ),
)
JOURNEY = (
    (
        "One day, {hero} packed some {food} and left for the {place2}.",
        "One {weather} morning, {they} set out to see the {place2}.",
    ),
    (
        "On the way {they} met {a_fkind} named {friend}.",
        "The road was long, and it went {direction} for {number} miles.",
    ),
    (
        '"Where are you going?" asked {friend}. "To the {place2}," said {hero}.',
        "They slept under {a_tree} tree and counted the stars.",
        '"May I come with you?" asked {friend} the {fkind}.',
    ),
    (
        "After {number} days they came to the {place2}, and it was wonderful.",
        "At the {place2} they found {a_color} {thing}.",
    ),
)
PLOTS = (LOST, STORM, SHARE, RACE, DOOR, BUILD, JOURNEY)

ENDINGS = (
    "From that day on, {hero} and {friend} were best friends.",
    "{hero} went home, ate some {food} and slept well.",
    "And {hero} never forgot that day.",
    "And they lived happily ever after.",
    '"Thank you, {hero}," said {friend}, and they went home together.',
    "That night {hero} told the story to everyone at the {place}.",
    "Since then, the {color} {thing} stands in {their} window.",
    "{hero} had learned that it is good to be {trait}.",
)

MOOD_WORDS = {
    "happy": "happy smiled laughed joy cheerful giggled delight glad sang danced merry".split(),
    "sad": "sad cried tears lonely sorrow wept sighed gloomy missed sobbed unhappy".split(),
    "angry": "angry shouted stamped furious rage growled slammed fists yelled cross anger".split(),
    "calm": "calm quiet gentle softly peaceful slowly rested still breathed silence soft".split(),
    "scared": "scared trembled afraid shook fear shadows hid shivered frightened gasped terror".split(),
}
MOOD_SENTENCES = {
    "happy": (
        "{hero} smiled and danced around the {thing}.",
        "{They} laughed with joy when {they} saw the {color} {thing}.",
        '"I am so happy!" sang {hero}.',
        "{friend} the {fkind} giggled and gave {them} some {food}.",
        "It was a cheerful day, and {hero} was glad to be there.",
        "With delight {they} ran to the {place}.",
        "A merry song came from the {place}, and {hero} danced.",
        "{hero} and {friend} laughed until the evening.",
        "{They} felt so glad that {they} sang to the {tree} tree.",
        "What a joy it was to eat {food} with {friend}!",
    ),
    "sad": (
        "{hero} sat down and cried.",
        "Tears fell on {their} {color} {thing}.",
        '"I am so lonely," sighed {hero}.',
        "{They} missed {friend} the {fkind}, who had gone away.",
        "It was a gloomy day, and {hero} felt sad.",
        "Full of sorrow, {they} walked to the {place}.",
        "{hero} wept because the {thing} was broken.",
        "{They} sobbed under the {tree} tree until the evening.",
        "Nobody came, and {hero} was lonely and unhappy.",
        "{They} looked at the {food} and sighed, too sad to eat.",
    ),
    "angry": (
        "{hero} stamped on the ground and yelled.",
        "{They} slammed the door of the {place} with anger.",
        '"Give me back my {thing}!" shouted {hero}.',
        "{friend} the {fkind} growled and made {hero} furious.",
        "It was a bad day, and {hero} was angry at everyone.",
        "Full of rage, {they} threw the {color} {thing} away.",
        "{hero} made fists and shouted at the {tree} tree.",
        "{hero} was so cross that {they} kicked the {food}.",
        "{hero} and {friend} yelled at each other until the evening.",
        "With an angry face {they} stamped back to the {place}.",
    ),
    "calm": (
        "{hero} rested under the {tree} tree.",
        "A gentle wind moved softly over the {place}.",
        '"How quiet it is," said {hero} in a soft voice.',
        "{friend} the {fkind} lay still beside {them}.",
        "It was a peaceful day, and {hero} felt calm.",
        "Slowly {they} walked along the {place}.",
        "{They} breathed in and looked at the {color} {thing}.",
        "{hero} ate some {food} in silence.",
        "The {place} was still, and {hero} breathed slowly.",
        "Softly {they} put down the {thing} and rested.",
    ),
    "scared": (
        "{hero} trembled and hid behind the {thing}.",
        "There were shadows in the {place}, and {they} shook with fear.",
        '"I am afraid," gasped {hero}.',
        "{friend} the {fkind} shivered and was too frightened to speak.",
        "It was a strange day, and {hero} was scared.",
        "Full of fear, {they} ran from the {place}.",
        "{hero} hid under the {tree} tree and shivered.",
        "Something moved near the {color} {thing}, and {they} gasped.",
        "{hero} and {friend} shook with terror until the evening.",
        "{hero} was too scared to eat the {food} and trembled.",
    ),
}
MOOD_OPENINGS = (
    "One {weather} day, {hero} the {kind} went to the {place}.",
    "{hero} was {a_size} {kind} who lived near the {place}.",
    "That morning {hero} woke up at the {place}.",
    "In the evening {hero} came home from the {place}.",
    "There was {a_kind} named {hero}.",
    "Once upon a time, {a_kind} named {hero} found {a_color} {thing}.",
)
PLAIN_SENTENCES = (
    "{They} walked past the {place} and saw {a_color} {thing}.",
    "{friend} the {fkind} was there, too.",
    "There was {a_tree} tree beside the road.",
    "{hero} had some {food} in {their} bag.",
    "The clock showed {number}.",
    "{They} asked {friend} about the way to the {place}.",
    "On the table lay {a_color} {thing} and some {food}.",
    "It was {weather} at the {place}.",
)
