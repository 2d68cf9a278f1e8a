"""Generate the training text of the bundled models.

All text is made of the word lists and sentence patterns in `scripts/tiny/`. A seed determines every document;
checksums of value combinations determine which of them are held out.
"""

from collections.abc import Callable, Iterator
from random import Random

from tiny import records, stories, world
from tiny.chat import chat
from tiny.notes import list_text, note, sorted_list_text
from tiny.split import Split

Writer = Callable[[Random, Split], str]


def _record(rng: Random, split: Split) -> str:
    return "".join(records.record_pair(records.record(rng, split)))


def _echo(rng: Random, split: Split) -> str:
    return "".join(records.echo_pair(rng, split))


def _question(rng: Random, split: Split) -> str:
    return "".join(world.question_pair(world.fact(rng, split)))


def _portrait(rng: Random, split: Split) -> str:
    # The world is closed: what training tells of it is all there is, so the other split asks instead.
    return world.portrait(rng) if split == "train" else _question(rng, split)


def _pet(rng: Random, split: Split) -> str:
    return "".join(records.record_pair(records.pet_record(rng, split)))


def _values(rng: Random, split: Split) -> str:
    return "".join(records.values_pair(rng, split))


# Shares of documents. Stories are long, so they still make up most of the tokens.
FIRST_LESSON: dict[Writer, int] = {
    stories.story: 18,
    stories.mood_story: 12,
    _record: 18,
    _echo: 10,
    _question: 14,
    _portrait: 3,
    list_text: 5,
    note: 5,
    chat: 17,
}
# The first lesson leaves two things to learn: to copy a small word from a sentence into quotes, and
# to name nothing twice in a list.
LESSONS = (FIRST_LESSON, FIRST_LESSON | {_pet: 10, _values: 10, list_text: 0, sorted_list_text: 10})


def documents(seed: int, split: Split, lesson: int = 0) -> Iterator[str]:
    """Yield the documents of a lesson endlessly; the same seed gives the same documents."""
    rng = Random(f"{seed} {split}")
    writers, shares = list(LESSONS[lesson]), list(LESSONS[lesson].values())
    while True:
        yield rng.choices(writers, shares)[0](rng, split)


def record_pairs(n: int, split: Split, seed: int = 0) -> list[tuple[str, str]]:
    """Return `n` sentences with their records, as prompt and completion."""
    rng = Random(f"{seed} {split} records")
    return [records.record_pair(records.record(rng, split)) for _ in range(n)]
