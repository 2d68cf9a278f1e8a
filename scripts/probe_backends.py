"""Probe the installed grammar back ends with each shape of JSON Schema, and write the results.

    python scripts/probe_backends.py

writes gencli/structured/support.json and the table in docs/reference/schema-keywords.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.structured.probes.acceptor import VERSIONS  # noqa: E402
from tests.structured.probes.verdicts import table  # noqa: E402

WORDS = {
    "exact": "**mask**",
    "tight": "mask, tight",
    "loose": "check",
    "refused": "refused",
    "unknown": "not probed",
}
PAGE = ROOT / "docs" / "reference" / "schema-keywords.md"
SUPPORT = ROOT / "gencli" / "structured" / "support.json"


def probed() -> dict[str, Any]:
    """Return the content of the support file."""
    return {name: {"version": version, "shapes": table(name)} for name, version in VERSIONS.items()}


def page(support: dict[str, Any], text: str) -> str:
    """Return the docs page with the table of the support file."""
    names = list(support)
    titles = [f"{name} {support[name]['version']}" for name in names]
    lines = [f"| shape | {' | '.join(titles)} |"]
    lines.append("|---|" + "---|" * len(names))
    for shape in sorted({shape for name in names for shape in support[name]["shapes"]}):
        words = [WORDS[support[name]["shapes"].get(shape, "unknown")] for name in names]
        lines.append(f"| `{shape}` | {' | '.join(words)} |")
    before, rest = text.split("<!-- probes -->")
    after = rest.split("<!-- /probes -->")[1]
    return "\n".join([f"{before}<!-- probes -->\n", *lines, f"\n<!-- /probes -->{after}"])


def main() -> None:
    found = probed()
    SUPPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
