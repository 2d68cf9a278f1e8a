"""Write tests/data/audits.txt: `PYTHONPATH=. python scripts/audit_table.py`.

A line has a schema and what each back end enforces of it: `all`, or the keywords that are left to the final
check or to nobody (`unknown`), and the objects whose names only the check keeps unique (`names`). The schemas
are those of tests/data/schemas.jsonl by name, those of the probes by shape and digest, and those on command
lines in the docs and examples by file and number. The diff of the file shows what a change of the rewriting,
of the grades or of a back end does to each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import UNIQUE_NAMES, Variant
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_inputs import named_file
from gencli.structured.schema_source import read_schema
from tests.structured.probes.verdicts import PROBES

ROOT = Path(__file__).resolve().parent.parent
TABLE, SCHEMAS = ROOT / "tests" / "data" / "audits.txt", ROOT / "tests" / "data" / "schemas.jsonl"
_PAGES = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.sh"))
_GIVEN = re.compile(r"--json-schema '([^']+)'")


def table() -> str:
    """Return the content of the file."""
    return "".join(f"{name}  {verdict(schema)}\n" for name, schema in schemas())


def schemas() -> Iterator[tuple[str, Any]]:
    """Yield each schema with its name."""
    for line in SCHEMAS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["name"], row["schema"]
    probed = {json.dumps(probe.schema, sort_keys=True): probe for probe in PROBES}
    for text, probe in sorted(probed.items(), key=lambda one: (one[1].shape, one[0])):
        yield f"probe {probe.shape} {sha256(text.encode()).hexdigest()[:8]}", probe.schema
    for page in sorted(_PAGES):
        texts = dict.fromkeys(_GIVEN.findall(page.read_text(encoding="utf-8")))
        own = [text for text in texts if named_file("json_schema", text) is None]
        for number, text in enumerate(own, start=1):
            yield f"{page.relative_to(ROOT)} {number}", read_schema(text)


def verdict(schema: Any) -> str:
    """Return what each back end enforces of a schema, the chosen one first."""
    try:
        plan = choose(schema)
    except SchemaError:
        return "nothing satisfies it"
    return "; ".join(f"{one.audit.backend}: {_open(one)}" for one in plan.variants)


def _open(variant: Variant) -> str:
    places: dict[str, list[str]] = {}
    for one in variant.audit.open:
        what = "names" if one.keyword == UNIQUE_NAMES else one.verdict
        places.setdefault(what, []).append(one.pointer or "/")
    return ", ".join(f"{what} {' '.join(found)}" for what, found in places.items()) or "all"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
