"""Write tests/data/repeats.jsonl: 50 prompts whose answers repeat parts of them.

    python scripts/make_repeats.py

quote: a portrait of a town or an animal, to be repeated. edit: a JSON list, to be repeated with one word
changed, or a line to copy. json: a sentence with its record, then another wording of the sentence, or one
with another number. No prompt is selected by the results of drafters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tiny.words import CITIES, JOBS, THINGS
from tiny.world import FACTS, KNOWN

TARGET = Path(__file__).parent.parent / "tests" / "data" / "repeats.jsonl"
NAMES = ("Mia", "Otto", "Anna", "Tom", "Lena", "Paul", "Ivy", "Ben", "Leo", "Ada", "Hazel", "Theo")
FIRST = "{name} is a {age} year old {job} from {city}."
OTHER = (
    "{name}, {age}, works as a {job} in {city}.",
    "In {city} there is a {job} called {name}, aged {age}.",
)


def quotes(draw: random.Random) -> Iterator[str]:
    """Yield portraits that the prompt contains."""
    for subject in sorted(KNOWN):
        facts = list(dict.fromkeys(fact.statement for fact in FACTS if fact.subject == subject))
        told = f"About {subject}: {' '.join(draw.sample(facts, 4))}"
        yield f"{told}\n\nAbout {subject}:"


def edits(draw: random.Random) -> Iterator[str]:
    """Yield lists with one word changed and copies, alternately."""
    while True:
        words = [draw.choice(NAMES), str(draw.randint(10, 99)), *draw.sample(THINGS, 2)]
        changed = [*words[:3], draw.choice(THINGS)]
        before = f"Words: {', '.join(words)}\nJSON: {json.dumps(words)}"
        yield f"{before}\n\nWords: {', '.join(changed)}\nJSON:"
        yield f"Repeat: {' '.join(words)}\nCopy:"


def records(draw: random.Random) -> Iterator[str]:
    """Yield records of which the prompt contains one."""
    while True:
        person = {"name": draw.choice(NAMES), "age": draw.randint(20, 79), "job": draw.choice(JOBS),
                  "city": draw.choice(CITIES)}  # fmt: skip
        before = f"Sentence: {FIRST.format(**person)}\nJSON: {json.dumps(person)}"
        yield f"{before}\n\nSentence: {draw.choice(OTHER).format(**person)}\nJSON:"
        older = person | {"age": draw.randint(20, 79)}
        yield f"{before}\n\nSentence: {FIRST.format(**older)}\nJSON:"


def main() -> None:
    """Write the file."""
    draw = random.Random(0)
    kinds = {"quote": (quotes, 17), "edit": (edits, 16), "json": (records, 17)}
    lines = [
        json.dumps({"kind": kind, "prompt": prompt})
        for kind, (make, number) in kinds.items()
        for prompt in islice(make(draw), number)
    ]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
