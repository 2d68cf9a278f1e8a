"""Conversations as the chat template writes them."""

from collections.abc import Callable
from random import Random

from tiny import notes, records, stories, world
from tiny.split import Split, draw
from tiny.words import MOODS, NUMBERS, person_name

Turn = tuple[str, str]
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly helper.",
    "You answer questions about the twelve towns.",
    "Be short and kind.",
    "You help people who write and count.",
)
GREETINGS = ("Hello!", "Hi!", "Good morning!", "Hello, how are you?", "Hi, who are you?", "Hey there!")
REPLIES = (
    "Hello! How can I help you?",
    "Hi! What can I do for you?",
    "Hello! I am Tiny, a small helper.",
    "Good day! Ask me for a story, a list or a fact.",
)
INTRODUCTIONS = ("My name is {name}.", "Hello, I am {name}.", "Hi! I am called {name}.")
ASK_STORY = (
    "Tell me a story about {name}.",
    "Write a story about {name}.",
    "Please tell a story about {name}.",
)
ASK_MOOD = ("Tell me a {mood} story about {name}.", "Write a {mood} story about {name}.")
ASK_JSON = ("Turn this sentence into JSON: {s}", "Make a JSON record: {s}", "JSON please: {s}")
ASK_LIST = ("List {what}.", "Name {what}.", "Give me a list of {what}.")
THANKS = (
    ("Thank you!", "You are welcome!"),
    ("Thanks, bye!", "Goodbye!"),
    ("That is great.", "I am glad to help."),
)


def render(turns: list[Turn], system: str | None = None) -> str:
    """Write a conversation as `chat_template.jinja` does, without the first token, which encoding adds."""
    head = f"<|system|>{system}<|end|>" if system else ""
    return head + "".join(f"<|user|>{u}<|end|><|assistant|>{a}<|end|>" for u, a in turns)


def greeting(rng: Random, split: Split) -> list[Turn]:
    """Say hello."""
    return [(rng.choice(GREETINGS), rng.choice(REPLIES))]


def introduction(rng: Random, split: Split) -> list[Turn]:
    """Tell a name, perhaps talk of something else, and ask for the name again."""
    name = draw(rng, split, person_name, lambda n: (n, "chat"))
    hello = (rng.choice(INTRODUCTIONS).format(name=name), f"Nice to meet you, {name}!")
    middle = _short_task(rng, split) if rng.random() < 0.4 else []
    return [hello, *middle, ("What is my name?", f"Your name is {name}.")]


def question(rng: Random, split: Split) -> list[Turn]:
    """Ask a fact and answer in a full sentence."""
    fact = world.fact(rng, split)
    return [(fact.question, fact.statement)]


def record_request(rng: Random, split: Split) -> list[Turn]:
    """Ask for the record of a sentence."""
    record = records.record(rng, split)
    return [(rng.choice(ASK_JSON).format(s=record.sentence), record.json)]


def list_request(rng: Random, split: Split) -> list[Turn]:
    """Ask for a list."""
    category, length = what = rng.choice(notes.lists(split))
    ask = rng.choice(ASK_LIST).format(what=f"{NUMBERS[length]} {category}")
    return [(ask, notes.list_items(rng, what))]


def repetition(rng: Random, split: Split) -> list[Turn]:
    """Ask to repeat words, plainly or as a JSON list."""
    prompt, completion = records.echo_pair(rng, split)
    kind, _, words = prompt.partition("\n")[0].partition(": ")
    return [(f"{'Repeat' if kind == 'Repeat' else 'JSON list'}: {words}", completion.strip())]


def story_request(rng: Random, split: Split) -> list[Turn]:
    """Ask for a story about somebody."""
    who = stories.story_hero(rng, split)
    return [(rng.choice(ASK_STORY).format(name=who.name), stories.story_for(rng, who))]


def mood_request(rng: Random, split: Split) -> list[Turn]:
    """Ask for a story about somebody, in a mood."""
    mood = rng.choice(MOODS)
    who = stories.mood_hero(rng, split, mood)
    return [(rng.choice(ASK_MOOD).format(name=who.name, mood=mood), stories.mood_story_for(rng, who, mood))]


Task = Callable[[Random, Split], list[Turn]]
SHORT_TASKS: tuple[Task, ...] = (
    greeting,
    question,
    question,
    question,
    record_request,
    record_request,
    list_request,
    repetition,
)


def _short_task(rng: Random, split: Split) -> list[Turn]:
    # Greetings are the same in all conversations: outside training they would be nothing new.
    return rng.choice(SHORT_TASKS if split == "train" else SHORT_TASKS[1:])(rng, split)


def _directed(rng: Random, split: Split) -> str:
    """Let the system turn say what is wanted: a mood, or records only."""
    if rng.random() < 0.5:
        mood = rng.choice(MOODS)
        who = stories.mood_hero(rng, split, mood)
        ask = rng.choice(ASK_STORY).format(name=who.name)
        return render([(ask, stories.mood_story_for(rng, who, mood))], f"You tell {mood} stories.")
    record = records.record(rng, split)
    return render([(record.sentence, record.json)], "Answer with JSON only.")


def chat(rng: Random, split: Split) -> str:
    """Hold a conversation of one to four turns."""
    if rng.random() < 0.15:
        return _directed(rng, split)
    tasks: tuple[Task, ...] = (
        _short_task,
        _short_task,
        _short_task,
        story_request,
        mood_request,
        introduction,
    )
    turns = rng.choice(tasks)(rng, split)
    while len(turns) < 4 and rng.random() < 0.3:
        turns += _short_task(rng, split)
    if rng.random() < 0.15:
        turns.append(rng.choice(THANKS))
    return render(turns, rng.choice(SYSTEMS) if rng.random() < 0.4 else None)
