"""Probe the installed grammar back ends and write what they make of each shape of JSON Schema.

    python scripts/probe_backends.py

writes gencli/structured/support.json and the table in docs/structured-output.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.structured.probes.acceptor import VERSIONS  # noqa: E402
from tests.structured.probes.verdicts import table  # noqa: E402

SUPPORT = ROOT / "gencli" / "structured" / "support.json"


def probed() -> dict[str, object]:
    """What the support file has to hold."""
    return {name: {"version": version, "shapes": table(name)} for name, version in VERSIONS.items()}


def main() -> None:
    found = probed()
    SUPPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
