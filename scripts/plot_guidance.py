"""Draw how the mood of tiny's stories follows the guidance scale: docs/guidance.csv and docs/guidance.png.

    python scripts/plot_guidance.py [--stories 200] [--draw-only]

The prompt names a mood, the negative prompt names none. Counted are words of that mood and of all moods.
Needs matplotlib: pip install -e '.[plots]'.
"""

import csv
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from tiny.plots import MOOD_WORDS

from gencli.engine import Engine
from gencli.events import Finish
from gencli.models.resolve import Loaded, ModelChoice, load
from gencli.request import Guidance, Limits, Request
from processors.chain import Chain
from processors.rng import derive

DOCS = Path(__file__).parent.parent / "docs"
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
MOODS = ("sad", "scared", "angry", "happy")
BATCH = 64
Point = dict[str, float | str]


def measured(num_stories: int) -> Iterator[Point]:
    """A point for each mood and scale."""
    loaded = load(ModelChoice("tiny", dtype="float32", max_batch=2 * BATCH))
    engine = Engine(loaded.runner, loaded.tokenizer, max_batch=BATCH)
    for mood in MOODS:
        for scale in SCALES:
            stories = told(engine, loaded, mood, scale, num_stories)
            words = [re.findall("[a-z]+", story.lower()) for story in stories]
            own = sum(word in MOOD_WORDS[mood] for story in words for word in story)
            every = sum(word in listed for listed in MOOD_WORDS.values() for story in words for word in story)
            named = sum(bool({*story} & {*MOOD_WORDS[mood]}) for story in words)
            yield {
                "mood": mood,
                "scale": scale,
                "stories": len(stories),
                "own_words_per_100": round(100 * own / sum(map(len, words)), 3),
                "own_share_of_mood_words": round(own / max(1, every), 4),
                "stories_with_own_word": round(named / len(stories), 4),
            }


def told(engine: Engine, loaded: Loaded, mood: str, scale: float, count: int) -> list[str]:
    """Stories of one mood at one scale."""
    prompt, negative = (tuple(loaded.tokenizer.encode(text)) for text in (f"Mood: {mood}\nStory:", "Story:"))
    for index in range(count):
        request = Request(
            str(index),
            prompt,
            Chain(),
            derive(1, index),
            guidance=Guidance(scale, negative),
            limits=Limits(80),
        )
        engine.submit(request)
    return [event.text for event in engine.run() if isinstance(event, Finish)]


def draw(points: list[dict[str, str]], path: Path) -> None:
    """How many words are of the mood, and what share of all words of moods, against the scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), dpi=120)
    labels = {
        "own_words_per_100": "words of the mood asked for,\namong 100 words",
        "own_share_of_mood_words": "their share of the words of all moods",
    }
    for axes, (column, label) in zip(panels, labels.items(), strict=True):
        for mood in dict.fromkeys(point["mood"] for point in points):
            mine = [point for point in points if point["mood"] == mood]
            axes.plot([float(p["scale"]) for p in mine], [float(p[column]) for p in mine], "o-", label=mood)
        axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("guidance scale (1 is off)")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
    panels[1].legend(frameon=False)
    figure.suptitle(f"Stories of tiny, {points[0]['stories']} a point", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    """Measure unless told not to, then draw."""
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
