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


def _greet(rng: Random, split: Split) -> list[Turn]:
    return [(rng.choice(GREETINGS), rng.choice(REPLIES))]


def _introduce(rng: Random, split: Split) -> list[Turn]:
    name = draw(rng, split, person_name, lambda n: (n, "chat"))
    hello = (rng.choice(INTRODUCTIONS).format(name=name), f"Nice to meet you, {name}!")
    middle = _short_task(rng, split) if rng.random() < 0.4 else []
    return [hello, *middle, ("What is my name?", f"Your name is {name}.")]


def _fact(rng: Random, split: Split) -> list[Turn]:
    fact = world.fact(rng, split)
    return [(fact.question, fact.statement)]


def _json(rng: Random, split: Split) -> list[Turn]:
    record = records.record(rng, split)
    return [(rng.choice(ASK_JSON).format(s=record.sentence), record.json)]


def _list(rng: Random, split: Split) -> list[Turn]:
    category, length = what = rng.choice(notes.lists(split))
    ask = rng.choice(ASK_LIST).format(what=f"{NUMBERS[length]} {category}")
    return [(ask, notes.list_items(rng, what))]


def _echo(rng: Random, split: Split) -> list[Turn]:
    prompt, completion = records.echo_pair(rng, split)
    words = prompt.partition(": ")[2].partition("\n")[0]
    return (
        [(f"Repeat: {words}", words)] if "Repeat" in prompt else [(f"JSON list: {words}", completion.strip())]
    )


def _story(rng: Random, split: Split) -> list[Turn]:
    who = stories.story_hero(rng, split)
    return [(rng.choice(ASK_STORY).format(name=who.name), stories.story_for(rng, who))]


def _mood_story(rng: Random, split: Split) -> list[Turn]:
    mood = rng.choice(MOODS)
    who = stories.mood_hero(rng, split, mood)
    return [(rng.choice(ASK_MOOD).format(name=who.name, mood=mood), stories.mood_story_for(rng, who, mood))]


Task = Callable[[Random, Split], list[Turn]]
SHORT_TASKS: tuple[Task, ...] = (_greet, _fact, _fact, _fact, _json, _json, _list, _echo)


def _short_task(rng: Random, split: Split) -> list[Turn]:
    return rng.choice(SHORT_TASKS)(rng, split)


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
    tasks: tuple[Task, ...] = (_short_task, _short_task, _short_task, _story, _mood_story, _introduce)
    turns = rng.choice(tasks)(rng, split)
    while len(turns) < 4 and rng.random() < 0.3:
        turns += _short_task(rng, split)
    if rng.random() < 0.15:
        turns.append(rng.choice(THANKS))
    return render(turns, rng.choice(SYSTEMS) if rng.random() < 0.4 else None)
