"""Plot docs/accepted.png: how many drafts of a step are accepted, by drafter, and print the table.

    gencli run --model tiny --draft HEAD --draft-tokens 7 --temperature 0 --format json PROMPT > eagle3.json
    python scripts/plot_accepted.py "EAGLE-3=eagle3.json" "DFlash=dflash.json"

It needs matplotlib (extra `plots`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

TARGET = Path(__file__).parent.parent / "docs" / "accepted.png"


def main() -> None:
    """Plot for each drafter the share of the steps in which at least so many drafts were accepted."""
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for told in sys.argv[1:]:
        name, _, file = told.partition("=")
        counts: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))["speculation"]
        shares = [accepted / counts["forwards"] for accepted in counts["accepted"]]
        axes.plot(range(1, len(shares) + 1), shares, "o-", label=f"{name}: {1 + sum(shares):.2f} a forward")
        print(name, *(f"{100 * share:.0f}" for share in shares), f"{1 + sum(shares):.2f}", sep=" | ")
    axes.set(xlabel="accepted drafts, at least", ylabel="share of the steps", ylim=(0, 1.02))
    axes.grid(alpha=0.25)
    axes.legend(fontsize="small", title="tokens of the text")
    figure.savefig(TARGET, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
