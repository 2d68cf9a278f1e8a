"""Plot the mood of tiny's stories against the guidance scale: docs/guidance.csv and docs/guidance.png.

    python scripts/plot_guidance.py [--stories 200] [--draw-only]

The prompt names a mood and begins a story, each in its own words; the negative prompt is the same without the
mood. Counted are the sentences and words of the continuation. Needs matplotlib: pip install -e '.[plots]'.
"""

import csv
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tiny.plots import MOOD_WORDS
from tiny.stories import mood_opening
from tiny.words import MOODS

from gencli.core.events import Finish
from gencli.core.request import Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.runtime.model_loading import Loaded, ModelChoice, load
from gencli.runtime.wiring import bare_engine
from processors.chain import Chain
from processors.rng import derive

DOCS = Path(__file__).parent.parent / "docs"
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
CHAIN = Chain.parse("top_p=0.9")
BATCH = 64
Point = dict[str, float | str]


def measured(num_stories: int) -> Iterator[Point]:
    """Yield a point for each mood and scale."""
    loaded = load(ModelChoice("tiny", dtype="float32", max_batch=2 * BATCH))
    engine = bare_engine(loaded.runner, loaded.tokenizer, max_batch=BATCH)
    for mood in MOODS:
        for scale in SCALES:
            stories = told(engine, loaded, mood, scale, num_stories)
            yield {"mood": mood, "scale": scale, "stories": len(stories), **counted(stories, mood)}


def told(engine: Engine, loaded: Loaded, mood: str, scale: float, count: int) -> list[str]:
    """Return stories of one mood at one scale.

    Story i has the same beginning and draws for all moods and scales.
    """
    for index in range(count):
        opening = f"Story: {mood_opening(Random(index))}"
        prompt, negative = (
            tuple(loaded.tokenizer.encode(text)) for text in (f"Mood: {mood}\n{opening}", opening)
        )
        request = Request(
            str(index),
            prompt,
            CHAIN,
            derive(1, index),
            guidance=Guidance(scale, negative),
            limits=Limits(80),
        )
        engine.submit(request)
    return [event.text for event in engine.run() if isinstance(event, Finish)]


def counted(stories: list[str], mood: str) -> Point:
    """Return the share of the mood in the stories: by sentences, by words, by mood words."""
    sentences = [found for story in stories for found in re.split(r'(?<=[.!?])"?\s+', story) if found.strip()]
    words = [re.findall("[a-z]+", sentence.lower()) for sentence in sentences]
    num_words = sum(map(len, words))
    own = sum(word in MOOD_WORDS[mood] for sentence in words for word in sentence)
    every = sum(word in listed for listed in MOOD_WORDS.values() for sentence in words for word in sentence)
    with_own = sum(not {*MOOD_WORDS[mood]}.isdisjoint(sentence) for sentence in words)
    return {
        "sentences_with_own_word": round(with_own / len(words), 4),
        "own_words_per_100": round(100 * own / num_words, 3),
        "own_share_of_mood_words": round(own / max(1, every), 4),
        "words_per_story": round(num_words / len(stories), 2),
    }


def draw(points: list[dict[str, str]], path: Path) -> None:
    """Plot the shares of sentences and words against the scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), dpi=120)
    labels = {
        "sentences_with_own_word": "share of sentences with a word\nof the mood asked for",
        "own_words_per_100": "words of the mood asked for,\namong 100 words",
    }
    for axes, (column, label) in zip(panels, labels.items(), strict=True):
        for mood in dict.fromkeys(point["mood"] for point in points):
            mine = [point for point in points if point["mood"] == mood]
            axes.plot([float(p["scale"]) for p in mine], [float(p[column]) for p in mine], "o-", label=mood)
        axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("guidance scale (1 is off)")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
    panels[0].legend(frameon=False, loc="lower right")
    figure.suptitle(f"Continued stories of tiny, {points[0]['stories']} a point, top-p 0.9", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    """Measure unless --draw-only, then plot."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--draw-only", action="store_true")
    options, table = parser.parse_args(), DOCS / "guidance.csv"
    if not options.draw_only:
        points = list(measured(options.stories))
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, points[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(points)
    with table.open(encoding="utf-8", newline="") as file:
        draw([*csv.DictReader(file)], DOCS / "guidance.png")


if __name__ == "__main__":
    main()
