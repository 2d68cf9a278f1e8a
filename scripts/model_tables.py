"""Differences between logits that should be equal, for each model: tables of the docs.

    PYTHONPATH=. python scripts/model_tables.py

The page is docs/contributing/evidence.md. After rejected drafts: against a fresh prefill. Guided: against
log-probabilities with transformers' guidance_scale. Random models in float32; the largest difference.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from marks import write_between

from gencli.models.hf_runner import HFRunner
from tests.models import guided
from tests.models.loops import after_rollback
from tests.models.tiny_models import CONFIGS, NO_ROLLBACK, PROMPTS, build, continued

PAGE = Path(__file__).parent.parent / "docs" / "contributing" / "evidence.md"
LANES, LENGTH, KEPT = 8, 12, (0, 2, 4)


def main() -> None:
    """Write both tables between their marks."""
    torch.set_num_threads(1)
    kept = [f"{count} of 4 stand" for count in KEPT]
    write(PAGE, "rollback", [["model", *kept], *map(rollback, CONFIGS)])
    scales = [f"{scale:g}" for _, _, scale in guided.CASES]
    write(PAGE, "library", [["model", *scales, "ids"], *guidance()])


def rollback(kind: str) -> list[str]:
    """Return a line with the differences after each number of accepted drafts."""
    if kind in NO_ROLLBACK:
        return [kind, *["takes no drafts"] * len(KEPT)]
    model, found = build(kind), []
    texts = continued(model, LENGTH)
    for num_kept in KEPT:
        runners = [HFRunner(model, name=kind, max_lanes=LANES) for _ in range(2)]
        again, fresh = after_rollback(*runners, PROMPTS, texts, num_kept=num_kept)
        found.append(f"{float((again - fresh).abs().max()):.1e}")
    return [kind, *found]


def guidance() -> Iterator[list[str]]:
    """Yield a line for each model: the differences at each scale, and how many texts have the same ids."""
    for kind in ("llama", "gpt2", "qwen3"):
        model, same, found = guided.build(kind), 0, []
        for case in guided.CASES:
            expected, scores = guided.by_library(model, guided.request(case))
            ids, logits = guided.by_engine(model, case)
            same += ids == expected
            found.append(f"{float((logits.log_softmax(-1) - scores.log_softmax(-1)).abs().max()):.1e}")
        yield [kind, *found, f"{same}/{len(guided.CASES)}"]


def write(page: Path, mark: str, table: Sequence[Sequence[str]]) -> None:
    """Write the table to the page."""
    head, *lines = ["| " + " | ".join(cells) + " |" for cells in table]
    write_between(page, mark, "\n".join([head, "|---" * len(table[0]) + "|", *lines]))


if __name__ == "__main__":
    main()
