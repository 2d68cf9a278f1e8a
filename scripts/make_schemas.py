"""Write tests/data/schemas.jsonl: schemas of every kind, each with instances that jsonschema has classified.

    python scripts/make_schemas.py

Most schemas are drawn from templates with a fixed seed; those in tests/data/schemas_by_hand.jsonl are
hand-written. Each line: {"name", "schema", "valid": [...], "invalid": [...]}.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.schema_specials import OLD, RECURSIVE, SPECIAL, Made  # noqa: E402
from scripts.schema_templates import drawn  # noqa: E402

BY_HAND = ROOT / "tests" / "data" / "schemas_by_hand.jsonl"
TARGET = ROOT / "tests" / "data" / "schemas.jsonl"
LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
COUNT = 400  # besides those by hand


def sorted_out(made: Made) -> tuple[Any, list[Any], list[Any]]:
    """Return the schema with the unique instances on which jsonschema agrees with the template.

    Formats are checked.
    """
    schema, good, bad = made
    kind = validator_for(schema, default=validator_for(LATEST))
    kind.check_schema(schema)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    valid = {json.dumps(one): one for one in good if validator.is_valid(one)}
    invalid = {json.dumps(one): one for one in bad if not validator.is_valid(one)}
    return schema, list(valid.values())[:4], list(invalid.values())[:5]


def main() -> None:
    rng = random.Random(20261121)
    found: dict[str, dict[str, Any]] = {}
    written = [json.loads(line) for line in BY_HAND.read_text(encoding="utf-8").splitlines()]
    for one in written:
        _keep(found, one["name"], (one["schema"], one["valid"], one["invalid"]))
    for index, made in enumerate([*SPECIAL, *OLD, *RECURSIVE]):
        _keep(found, f"special-{index}", made)
    for index, made in enumerate(drawn(rng)):
        if len(found) >= COUNT + len(written):
            break
        _keep(found, f"drawn-{index}", made)
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in found.values()]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _keep(found: dict[str, dict[str, Any]], name: str, made: Made) -> None:
    schema, valid, invalid = sorted_out(made)
    if len(valid) > 1 and len(invalid) > 1:
        found.setdefault(
            json.dumps(schema), {"name": name, "schema": schema, "valid": valid, "invalid": invalid}
        )


if __name__ == "__main__":
    main()
