"""Walk all pairs of options and of stages, print what they do, and write docs/pairs.md.

    PYTHONPATH=. python scripts/pair_table.py

The walks are the suite's own, option_walk.py and stage_walk.py in tests/helpers; they take some minutes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from tests.helpers.option_walk import KEYS, OptionWalk, Verdict
from tests.helpers.pairs import FEATURES, HIDING, IDLE, NEUTRAL
from tests.helpers.stage_walk import IN_TURN, STAGE_PAIRS, act_together

_NUM_SHOWN = 240  # characters of what an option is tried with
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pairs.md"
PAIRS = list(combinations(KEYS, 2))
TITLES = {"refused": "Refused by name", "warned": "Acting, with a notice"}
HEAD = """\
# Options and stages in pairs

This page is made by scripts/pair_table.py, which runs the suite's walks over all pairs. Of the pairs of
options tests repeat those that are listed here, and every fourth of the others; of the stages all.
Two options act together where taking either of them away changes what the run prints, times aside: code,
stdout, stderr and file. Each pair is run on the fake model under every setup of the table below that suits
both, with seeds 1, 2, 3 and so on, until both show; one that never does is silent. Refused is what ends with
code 2 and names both, in whatever setup. Two stages act together where both change the logits of one step,
and the result is that of their plain twins.
"""
_ROW = re.compile(r"^\| `(\w+)` `(\w+)` \| (.*) \|$", re.MULTILINE)


def page(told: Mapping[tuple[str, str], Verdict]) -> str:
    """Return docs/pairs.md from the verdicts of option pairs that do more than act together."""
    lists = [
        _listed(title, {pair: verdict.said for pair, verdict in told.items() if verdict.kind == kind})
        for kind, title in TITLES.items()
    ]
    idle = _listed("One need not show beside the other", IDLE)
    return "\n".join([HEAD, table(told), *lists, idle, _listed("Stages that act in turn", IN_TURN), _tried()])


def table(told: Mapping[tuple[str, str], Verdict]) -> str:
    """Return the number of pairs of each kind."""
    refused, warned, silent = (sum(v.kind == k for v in told.values()) for k in (*TITLES, "silent"))
    acting, in_turn = len(PAIRS) - refused - silent, len(IN_TURN)
    return f"""\
| | options | stages |
|---|---|---|
| pairs | {len(PAIRS)} | {len(STAGE_PAIRS)} |
| acting together | {acting} | {len(STAGE_PAIRS) - in_turn} |
| of these with a notice | {warned} | |
| acting in turn | | {in_turn} |
| refused by name | {refused} | |
| silent | {silent} | 0 |
"""


def documented(text: str) -> dict[tuple[str, str], Verdict]:
    """Return the verdicts that a page lists; the inverse of `page`."""
    parts = {title: part for title, _, part in (part.partition("\n") for part in text.split("\n## "))}
    rows = {kind: _ROW.findall(parts[title]) for kind, title in TITLES.items()}
    return {
        (one, other): Verdict(kind, said.replace("\\|", "|"))
        for kind in rows
        for one, other, said in rows[kind]
    }


def _listed(title: str, rows: Mapping[tuple[str, str], str]) -> str:
    lines = [f"| `{one}` `{other}` | {_cell(said)} |" for (one, other), said in rows.items()]
    body = ["| Pair | What is said |", "|---|---|", *lines] if lines else ["None."]
    return "\n".join([f"## {title}", "", *body]) + "\n"


def _tried() -> str:
    """Return the values with which each option is tried."""
    title = "## What each option is tried with"
    lines = [title, "", "| Option | As | Beside | Remark |", "|---|---|---|---|"]
    for key in KEYS:
        own, setups = FEATURES[key].own, FEATURES[key].setups
        beside = " or ".join(_words(setup) or "nothing" for setup in setups) if any(setups) else ""
        remark = NEUTRAL.get(key) or HIDING.get(key, "")
        lines.append(" | ".join([f"| `{key}`", _words(own), beside, remark]) + " |")
    return "\n".join(lines) + "\n"


def _words(arguments: Mapping[str, tuple[str, ...] | None]) -> str:
    flags = [f"{flag} {value}".strip() for flag, values in arguments.items() for value in values or ("",)]
    text = " ".join(" ".join(flags).split()).replace(f"{ROOT}{os.sep}", "")
    shown = text if len(text) <= _NUM_SHOWN else text[:_NUM_SHOWN] + " ..."
    return f"`{_cell(shown)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Walk the pairs, print the table and write the page. Return the number of silent pairs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["XDG_CACHE_HOME"] = folder  # not the user's
        walk = OptionWalk(Path(folder))
        verdicts = {pair: walk.verdict(pair) for pair in PAIRS}
        os.chdir(ROOT)
    told = {pair: verdict for pair, verdict in verdicts.items() if verdict.kind != "acting"}
    silent = [f"{pair}: {verdict.said}" for pair, verdict in told.items() if verdict.kind == "silent"]
    silent += [f"{pair}: never act together" for pair in STAGE_PAIRS if not act_together(*pair)]
    print("\n".join([table(told), *silent]))
    PAGE.write_text(page(told), encoding="utf-8")
    return len(silent)


if __name__ == "__main__":
    sys.exit(main() > 0)
