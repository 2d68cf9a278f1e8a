"""Compare drafted texts with their distribution without drafts: docs/contributing/evidence.md.

    PYTHONPATH=. python scripts/rejection_table.py [--draws 34000] [--fault-draws 6000]

The grid is the suite's own, tests/processors/rejection_grid.py; it takes about eight minutes of CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from marks import write_between

from tests.processors.rejection_grid import CHAINS, FAULTS, FAULTS_OF_DROPPING, Gap, gap
from tests.processors.rejection_texts import PAIRS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "contributing" / "evidence.md"
EVERY = FAULTS | FAULTS_OF_DROPPING


def main() -> None:
    """Print both tables and write them between the marks of the page."""
    told, cells, caught = _told(), {}, {}
    for name in CHAINS:
        cells[name] = [_shown(gap(name, pair, told.draws)) for pair in PAIRS]
        caught[name] = _caught(name, told.fault_draws)
        print(_row(name, cells[name]), caught[name], flush=True)
    lines = [
        f"{told.draws:,} texts in each cell, {told.draws * len(CHAINS) * len(PAIRS):,} in all: chi-square / "
        "degrees of freedom (bound).\n",
        *_head("chain", PAIRS),
        *(_row(name, cells[name]) for name in CHAINS),
        f"\nThe same with faults, {told.fault_draws:,} texts in each cell: in how many cells a fault is "
        "caught, of those where it changes a text.\n",
        *_head("fault", CHAINS),
        *(_row(fault, [caught[name][fault] for name in CHAINS]) for fault in EVERY),
    ]
    write_between(PAGE, "rejection", "\n".join(lines))


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=34_000)
    parser.add_argument("--fault-draws", type=int, default=6_000)
    return parser.parse_args()


def _head(first: str, names: Iterable[str]) -> list[str]:
    row = _row(first, names)
    return [row, "|---" * (row.count("|") - 1) + "|"]


def _row(first: str, cells: Iterable[str]) -> str:
    return f"| {first} | " + " | ".join(cells) + " |"


def _shown(found: Gap) -> str:
    mark = "**" if found.is_wide else ""
    return f"{mark}{found.chi_square:.0f} / {found.freedom} ({found.bound:.0f}){mark}"


def _caught(name: str, draws: int) -> dict[str, str]:
    """Return for each fault the number of pairs that detect it, of those whose text it changes."""
    right = [gap(name, pair, draws) for pair in PAIRS]
    found = {}
    for fault, way in EVERY.items():
        wrong = [gap(name, pair, draws, way) for pair in PAIRS]
        changed = [one for one, due in zip(wrong, right, strict=True) if one != due]
        found[fault] = f"{sum(one.is_wide for one in changed)} of {len(changed)}"
    return found


if __name__ == "__main__":
    main()
