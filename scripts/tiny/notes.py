"""Small kinds of text: lists, letters, weather notes, counting."""

from random import Random

from tiny.split import Split, draw, is_held_out
from tiny.words import (
    ANIMALS,
    CLOTHES,
    COLORS,
    DIRECTIONS,
    FLOWERS,
    FOODS,
    FRUITS,
    JOBS,
    NUMBERS,
    PLACES,
    THINGS,
    TOOLS,
    TREES,
    WEATHER,
    WILD,
    person_name,
)

CATEGORIES = {
    "fruits": FRUITS,
    "colors": COLORS,
    "farm animals": ANIMALS,
    "wild animals": WILD,
    "foods": FOODS,
    "tools": TOOLS,
    "trees": TREES,
    "flowers": FLOWERS,
    "clothes": CLOTHES,
    "jobs": JOBS,
    "places": PLACES,
    "things": THINGS,
}
LENGTHS = range(2, 9)
List = tuple[str, int]


def lists(split: Split) -> list[List]:
    """Name every category and length of a split."""
    wanted = split == "held-out"
    return [(c, n) for c in CATEGORIES for n in LENGTHS if is_held_out(c, n) == wanted]


def list_items(rng: Random, what: List) -> str:
    """Write a list without repetitions."""
    category, length = what
    return "\n".join(f"- {item}" for item in rng.sample(CATEGORIES[category], length))


def list_text(rng: Random, split: Split) -> str:
    """Ask for a list and give it."""
    category, length = what = rng.choice(lists(split))
    return f"List: {NUMBERS[length]} {category}\n{list_items(rng, what)}"


def sorted_list_text(rng: Random, split: Split) -> str:
    """Give a list in the order of the alphabet, which shows what is named already."""
    head, *items = list_text(rng, split).splitlines()
    return "\n".join([head, *sorted(items)])


THANKS = (
    "Thank you for the {color} {thing}.",
    "I saw {number} {goods} at the {place}.",
    "How is the weather in the {place}?",
    "Here it is {weather} today.",
    "Please bring some {food} when you come.",
    "My {thing} is broken, but I can fix it!",
    "Do you remember the {place}?",
    "I will visit you in {number} days.",
    "The cat has slept all day; what a life.",
    "Yesterday we ate {food} under the {tree} tree.",
)


def letter(rng: Random, split: Split) -> str:
    """Write a short letter from one person to another."""
    names = draw(rng, split, lambda r: (person_name(r), person_name(r)), tuple)
    body = [
        sentence.format(
            color=rng.choice(COLORS),
            thing=rng.choice(THINGS),
            number=rng.choice(NUMBERS[2:]),
            goods=rng.choice(("birds", "boats", "children", "goats")),
            place=rng.choice(PLACES),
            weather=rng.choice(WEATHER),
            food=rng.choice(FOODS),
            tree=rng.choice(TREES),
        )
        for sentence in rng.sample(THANKS, rng.randint(2, 4))
    ]
    return f"Dear {names[0]},\n\n{' '.join(body)}\n\nYours,\n{names[1]}"


def weather_note(rng: Random, split: Split) -> str:
    """Report the weather, with numbers."""
    name = draw(rng, split, person_name, lambda n: (n,))

    def line(day: str) -> str:
        weather, degrees = rng.choice(WEATHER), rng.randint(-9, 35)
        return f"{day}: {weather}, {degrees} degrees, wind from the {rng.choice(DIRECTIONS)}."

    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")[: rng.randint(2, 5)]
    return "\n".join([f"Weather notes by {name}", *map(line, days)])


def counting(rng: Random, split: Split) -> str:
    """Count from one number to another."""
    first, last = draw(
        rng, split, lambda r: (start := r.randint(0, 90), start + r.randint(2, 9)), lambda pair: pair
    )
    return f"Count from {first} to {last}: {', '.join(map(str, range(first, last + 1)))}."


def note(rng: Random, split: Split) -> str:
    """Write one of the small kinds."""
    return rng.choice((letter, letter, weather_note, counting))(rng, split)
