"""What is enforced of each schema of the repository is written down: a diff shows what changes."""

from scripts.audit_table import TABLE, table


def test_the_audit_of_each_schema_is_the_recorded_one():
    recorded = set(TABLE.read_text(encoding="utf-8").splitlines())
    now = set(table().splitlines())
    changed = [f"- {line}" for line in sorted(recorded - now)] + [
        f"+ {line}" for line in sorted(now - recorded)
    ]
    assert not changed, "\n".join(
        ["PYTHONPATH=. python scripts/audit_table.py writes it anew.", *changed[:40]]
    )
