"""Sentences and the JSON records that say the same, and exercises in copying."""

import json
from dataclasses import dataclass
from random import Random

from tiny.split import Split, draw
from tiny.words import (
    ANIMALS,
    CITIES,
    COLORS,
    GOODS,
    JOBS,
    PETS,
    THINGS,
    coin_name,
    person_name,
    with_article,
)

PERSON = (
    "{name} is a {age} year old {job} from {city}.",
    "{name}, {age}, works as a {job} in {city}.",
    "The {job} {name} lives in {city} and is {age} years old.",
    "At {age}, {name} is the best {job} in {city}.",
    "In {city} there is a {job} called {name}, aged {age}.",
    "My name is {name}, I am {age} and I work as a {job} in {city}.",
)
PET = (
    "{pet} is {a_color} {animal} that belongs to {owner}.",
    "{owner} has {a_color} {animal} named {pet}.",
    "The {color} {animal} of {owner} is called {pet}.",
    "{owner} owns {pet}, {a_color} {animal}.",
    "My {animal} {pet} is {color}, says {owner}.",
)
ORDER = (
    "{buyer} bought {count} {item} for {price} coins.",
    "{buyer} paid {price} coins for {count} {item}.",
    "For {price} coins {buyer} got {count} {item} at the market.",
    "At the market, {count} {item} went to {buyer} for {price} coins.",
    "{buyer} spent {price} coins on {count} {item}.",
)


@dataclass(frozen=True)
class Record:
    """A sentence, its record, and the pair of values that decides on which side of the split it lies."""

    sentence: str
    fields: dict[str, str | int]
    key: tuple[str, ...]

    @property
    def json(self) -> str:
        """Write the record as one line of JSON."""
        return json.dumps(self.fields)


def _person(rng: Random) -> Record:
    city = coin_name(rng) if rng.random() < 0.25 else rng.choice(CITIES)
    name = person_name(rng)
    fields: dict[str, str | int] = {
        "name": name,
        "age": rng.randint(20, 79),
        "job": rng.choice(JOBS),
        "city": city,
    }
    return Record(rng.choice(PERSON).format(**fields), fields, (name, city))


def _pet(rng: Random) -> Record:
    pet = coin_name(rng) if rng.random() < 0.25 else rng.choice(PETS)
    owner = person_name(rng)
    fields: dict[str, str | int] = {
        "pet": pet,
        "animal": rng.choice(ANIMALS),
        "color": rng.choice(COLORS),
        "owner": owner,
    }
    sentence = rng.choice(PET).format(a_color=with_article(str(fields["color"])), **fields)
    return Record(sentence, fields, (pet, owner))


def _order(rng: Random) -> Record:
    buyer, item = person_name(rng), rng.choice(GOODS)
    fields: dict[str, str | int] = {
        "buyer": buyer,
        "count": rng.randint(2, 20),
        "item": item,
        "price": rng.randint(2, 99),
    }
    return Record(rng.choice(ORDER).format(**fields), fields, (buyer, item))


def record(rng: Random, split: Split) -> Record:
    """Draw a record; held out are pairs of values that never meet in training."""
    return draw(rng, split, rng.choice((_person, _person, _pet, _order)), lambda r: r.key)


def pet_record(rng: Random, split: Split) -> Record:
    """Draw a record of a pet, the kind with the most words that change their token between quotes."""
    return draw(rng, split, _pet, lambda r: r.key)


def record_pair(r: Record) -> tuple[str, str]:
    """Write a record as prompt and completion; the prompt ends without a space, as tokens do."""
    return f"Sentence: {r.sentence}\nJSON:", f" {r.json}"


def _words_to_copy(rng: Random) -> list[str]:
    kinds = (coin_name, person_name, lambda r: str(r.randint(0, 999)), lambda r: r.choice(THINGS + JOBS))
    return [rng.choice(kinds)(rng) for _ in range(rng.randint(2, 7))]


def echo_pair(rng: Random, split: Split) -> tuple[str, str]:
    """Ask to repeat some words, plainly or as a JSON list."""
    words = draw(rng, split, _words_to_copy, tuple)
    if rng.random() < 0.6:
        return f"Repeat: {' '.join(words)}\nCopy:", f" {' '.join(words)}"
    return f"Words: {', '.join(words)}\nJSON:", f" {json.dumps(words)}"


def values_pair(rng: Random, split: Split) -> tuple[str, str]:
    """Ask for small words as a JSON list: they have one token after a space and another after a quote."""
    words = draw(rng, split, lambda r: r.choices(COLORS + ANIMALS + GOODS + JOBS, k=r.randint(2, 7)), tuple)
    return f"Words: {', '.join(words)}\nJSON:", f" {json.dumps(words)}"
