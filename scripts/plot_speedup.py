"""Plot docs/speculation.png: measured and expected speedup by the number of draft tokens.

    python scripts/bench/speculate.py --model BIG --draft tiny-draft --format json > gains.json
    python scripts/plot_speedup.py gains.json

It needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

TARGET = Path(__file__).parent.parent / "docs" / "speculation.png"


def main() -> None:
    """Plot one line for each number of rows."""
    gains = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["records"]
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for place, rows in enumerate(sorted({gain["rows"] for gain in gains})):
        mine = [gain for gain in gains if gain["rows"] == rows]
        drafts = [gain["drafts"] for gain in mine]
        color, name = f"C{place}", f"{rows} row{'s' if rows > 1 else ''}"
        axes.plot(drafts, [gain["speedup"] for gain in mine], "o-", color=color, label=f"{name}, measured")
        axes.plot(drafts, [gain["expected"] for gain in mine], "--", color=color, label=f"{name}, expected")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(xlabel="drafts at a time", ylabel="tokens a second, times plain", ylim=(0, None))
    axes.legend(fontsize="small")
    figure.savefig(TARGET, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
