"""A small closed world: twelve towns, sixteen animals, and what is true of them."""

from dataclasses import dataclass
from random import Random

from tiny.split import Split, draw, is_held_out
from tiny.words import coin_name

TOWNS = """
Brindle      Otto    Blue_River     plum_cake       red     fox
Larkmoor     Vera    Long_Lake      onion_soup      green   owl
Oakhollow    Hugo    Deep_Forest    honey_bread     white   bear
Pebbleford   Greta   Stone_Bridge   fish_pie        blue    otter
Saltwick     Emil    Grey_Sea       salted_nuts     black   gull
Thornby      Ruth    Rose_Hill      berry_jam       yellow  hedgehog
Ashwater     Boris   Warm_Spring    carrot_stew     brown   frog
Copperhill   Dora    Old_Mine       cheese_pancakes golden  mole
Duskmere     Ivan    Silent_Swamp   mushroom_rice   purple  raven
Fernley      Clara   High_Meadow    apple_pie       pink    hare
Goldcross    Walter  Great_Market   sugar_buns      silver  horse
Winterbrook  Frida   Cold_Mountain  pea_soup        grey    wolf
"""
PETS = """
Biscuit  dog      brown   Lena    Brindle      bones
Shadow   cat      black   Finn    Larkmoor     fish
Clover   goat     white   Nora    Oakhollow    leaves
Kiki     parrot   green   Tim     Pebbleford   seeds
Nemo     turtle   yellow  Alma    Saltwick     lettuce
Pepper   horse    grey    Jonas   Thornby      carrots
Waffle   duck     golden  Petra   Ashwater     bread
Rusty    hamster  orange  Gus     Copperhill   nuts
Ziggy    snake    purple  Edith   Duskmere     eggs
Daisy    cow      red     Lars    Fernley      grass
Toffee   pig      pink    Ines    Goldcross    apples
Fluff    sheep    silver  Yuri    Winterbrook  hay
Jasper   rabbit   blue    Kaya    Brindle      cabbage
Olive    goose    white   Anton   Larkmoor     corn
Hazel    mouse    brown   Zoe     Oakhollow    cheese
Lucky    hen      black   Victor  Pebbleford   worms
"""


@dataclass(frozen=True)
class Relation:
    """One thing that can be asked about a subject: ways to ask, and the full sentence of the answer."""

    questions: tuple[str, ...]
    statement: str


@dataclass(frozen=True)
class Fact:
    """A question in one of its wordings, with its answer."""

    subject: str
    question: str
    answer: str
    statement: str


TOWN_RELATIONS = (
    Relation(
        (
            "Who is the mayor of {s}?",
            "What is the name of the mayor of {s}?",
            "Which mayor does {s} have?",
            "Who is mayor in {s}?",
            "Who leads the town of {s}?",
        ),
        "The mayor of {s} is {o}.",
    ),
    Relation(
        (
            "What is {s} close to?",
            "What lies near {s}?",
            "Which place is near {s}?",
            "What is next to the town of {s}?",
            "What can you see from {s}?",
        ),
        "{s} lies near {o}.",
    ),
    Relation(
        (
            "What do people eat in {s}?",
            "Which food is {s} known for?",
            "What is the favorite dish of {s}?",
            "What food does the town of {s} love?",
            "What is cooked in {s}?",
        ),
        "People in {s} eat {o}.",
    ),
    Relation(
        (
            "What color is the gate of {s}?",
            "Which color does the gate of {s} have?",
            "What is the color of the town gate of {s}?",
            "How is the gate of {s} painted?",
            "In {s}, what color is the gate?",
        ),
        "The gate of {s} is {o}.",
    ),
    Relation(
        (
            "Which animal is on the flag of {s}?",
            "What animal does the flag of {s} show?",
            "What is on the flag of {s}?",
            "Which animal stands for {s}?",
            "In {s}, which animal is on the flag?",
        ),
        "The flag of {s} shows the {o}.",
    ),
)
PET_RELATIONS = (
    Relation(
        (
            "What kind of animal is {s}?",
            "Which animal is {s}?",
            "What is {s}?",
            "What animal is {s}?",
            "Is {s} a cat, a dog or what?",
        ),
        "{s} is a {o}.",
    ),
    Relation(
        (
            "What color is {s}?",
            "Which color does {s} have?",
            "What is the color of {s}?",
            "What color has {s}?",
            "How would you paint {s}?",
        ),
        "{s} is {o}.",
    ),
    Relation(
        (
            "Who owns {s}?",
            "Who is the owner of {s}?",
            "Whose pet is {s}?",
            "To whom does {s} belong?",
            "Who takes care of {s}?",
        ),
        "{s} belongs to {o}.",
    ),
    Relation(
        (
            "Where does {s} live?",
            "In which town does {s} live?",
            "Which town is the home of {s}?",
            "What is the home town of {s}?",
            "Where is the home of {s}?",
        ),
        "{s} lives in {o}.",
    ),
    Relation(
        (
            "What does {s} eat?",
            "What is the favorite food of {s}?",
            "Which food does {s} like?",
            "What do you feed {s}?",
            "What does {s} like to eat?",
        ),
        "{s} likes to eat {o}.",
    ),
)


def _place(word: str) -> str:
    return f"the {word.replace('_', ' ')}" if "_" in word and word[0].isupper() else word.replace("_", " ")


def _facts(table: str, relations: tuple[Relation, ...]) -> list[Fact]:
    rows = [line.split() for line in table.strip().splitlines()]
    return [
        Fact(s, question.format(s=s), _place(o), relation.statement.format(s=s, o=_place(o)))
        for s, *values in rows
        for o, relation in zip(values, relations, strict=True)
        for question in relation.questions
    ]


FACTS = tuple(_facts(TOWNS, TOWN_RELATIONS) + _facts(PETS, PET_RELATIONS))
RELATIONS = TOWN_RELATIONS + PET_RELATIONS
KNOWN = frozenset(fact.subject for fact in FACTS)


def _any_fact(rng: Random) -> Fact:
    if rng.random() < 0.93:
        return rng.choice(FACTS)
    subject = coin_name(rng)
    question = rng.choice(rng.choice(RELATIONS).questions).format(s=subject)
    return Fact(subject, question, "I do not know", f"I do not know {subject}.")


def fact(rng: Random, split: Split) -> Fact:
    """Draw a question; held out are wordings of single facts, which other wordings teach."""
    return draw(rng, split, _any_fact, lambda f: (f.question,))


def fact_pairs(split: Split) -> list[tuple[str, str]]:
    """List all questions of a split about the world, as prompt and completion."""
    wanted = split == "held-out"
    return [question_pair(f) for f in FACTS if is_held_out(f.question) == wanted]


def question_pair(f: Fact) -> tuple[str, str]:
    """Write a fact as a question and its short answer."""
    return f"Question: {f.question}\nAnswer:", f" {f.answer}."


def portrait(rng: Random) -> str:
    """Tell some true sentences about one subject."""
    subject = rng.choice(sorted(KNOWN))
    statements = sorted({f.statement for f in FACTS if f.subject == subject})
    return f"About {subject}: " + " ".join(rng.sample(statements, rng.randint(2, len(statements))))
