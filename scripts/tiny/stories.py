"""Short stories about a named hero, plain or in a mood."""

from random import Random

from tiny import plots
from tiny.split import Split, draw
from tiny.words import (
    COLORS,
    DIRECTIONS,
    FOODS,
    MOODS,
    NUMBERS,
    PLACES,
    SIZES,
    THINGS,
    TRAITS,
    TREES,
    WEATHER,
    Hero,
    hero,
    with_article,
)

Slots = dict[str, str]


def _slots(rng: Random, who: Hero) -> Slots:
    """Choose what stays the same through one story."""
    friend = hero(rng)
    while friend.name == who.name or friend.kind in ("girl", "boy"):
        friend = hero(rng)
    place, place2 = rng.sample(PLACES, 2)
    slots = {"hero": who.name, "kind": who.kind, "they": who.they, "them": who.them, "their": who.their}
    slots |= {"friend": friend.name, "fkind": friend.kind, "place": place, "place2": place2}
    slots |= {"They": who.they.capitalize(), "Their": who.their.capitalize()}
    slots |= {"thing": rng.choice(THINGS), "color": rng.choice(COLORS), "food": rng.choice(FOODS)}
    slots |= {"tree": rng.choice(TREES), "direction": rng.choice(DIRECTIONS)}
    return slots


def _tell(rng: Random, template: str, slots: Slots) -> str:
    """Fill one sentence; small words change from sentence to sentence."""
    loose = {"size": rng.choice(SIZES), "trait": rng.choice(TRAITS), "weather": rng.choice(WEATHER)}
    loose["number"] = rng.choice(NUMBERS[2:])
    words = slots | loose
    articles = {
        f"a_{key}": with_article(words[key]) for key in ("size", "trait", "kind", "fkind", "color", "tree")
    }
    return template.format(**words, **articles)


def story_for(rng: Random, who: Hero) -> str:
    """Tell a story: an opening, sometimes a habit, the beats of a plot, an ending."""
    slots = _slots(rng, who)
    sentences = [rng.choice(plots.OPENINGS)]
    sentences += rng.sample(plots.LIKES, rng.choice((0, 1, 1, 2)))
    for beat in rng.choice(plots.PLOTS):
        sentences.append(rng.choice(beat))
    sentences.append(rng.choice(plots.ENDINGS))
    text = [_tell(rng, sentence, slots) for sentence in sentences]
    if rng.random() < 0.3:
        half = len(text) // 2
        return " ".join(text[:half]) + "\n\n" + " ".join(text[half:])
    return " ".join(text)


def mood_story_for(rng: Random, who: Hero, mood: str | None) -> str:
    """Tell a story in a mood, or in none.

    A third of the sentences has no mood and some have another one, so that there is
    something left for guidance to strengthen.
    """
    slots = _slots(rng, who)
    sentences = [rng.choice(plots.MOOD_OPENINGS)]
    for _ in range(rng.randint(3, 6)):
        kind = rng.random()
        if kind < 0.3:
            sentences.append(rng.choice(plots.PLAIN_SENTENCES))
        else:
            told = mood if mood and kind < 0.94 else rng.choice(MOODS)
            sentences.append(rng.choice(plots.MOOD_SENTENCES[told]))
    unique = list(dict.fromkeys(sentences))
    return " ".join(_tell(rng, sentence, slots) for sentence in unique)


def mood_opening(rng: Random) -> str:
    """Tell the first sentence of a story in a mood; no mood shows in it yet."""
    slots = _slots(rng, hero(rng))
    return _tell(rng, rng.choice(plots.MOOD_OPENINGS), slots)


def story_hero(rng: Random, split: Split) -> Hero:
    """Draw a hero; held out are names that never go with that kind of being."""
    return draw(rng, split, hero, lambda h: (h.name, h.kind))


def story(rng: Random, split: Split) -> str:
    """Tell a story about a hero of the split."""
    return story_for(rng, story_hero(rng, split))


def mood_hero(rng: Random, split: Split, mood: str) -> Hero:
    """Draw a hero; held out are names that never meet that mood."""
    return draw(rng, split, hero, lambda h: (h.name, mood))


def mood_story(rng: Random, split: Split) -> str:
    """Tell a story in a named mood; in training, one in five names none."""
    mood = rng.choice(MOODS)
    who = mood_hero(rng, split, mood)
    if split == "train" and rng.random() < 0.2:
        return f"Story: {mood_story_for(rng, who, None)}"
    return f"Mood: {mood}\nStory: {mood_story_for(rng, who, mood)}"


def mood_of(text: str) -> str | None:
    """Name the mood whose words are the most frequent, or nothing when no mood leads."""
    words = [word.strip('.,!?"').lower() for word in text.split()]
    counts = {mood: sum(word in lexicon for word in words) for mood, lexicon in plots.MOOD_WORDS.items()}
    best = max(counts.values())
    leaders = [mood for mood, count in counts.items() if count == best]
    return leaders[0] if best and len(leaders) == 1 else None
