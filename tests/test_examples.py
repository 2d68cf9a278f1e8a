"""Every example runs as it stands, and stays short."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


ELSEWHERE = {"serve_ray.py"}  # tests/server/test_ray.py runs it


EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").iterdir()
    if path.suffix in (".py", ".sh") and path.name not in ELSEWHERE
)


def test_there_are_examples_of_both_kinds():
    assert len(EXAMPLES) >= 8
    assert {path.suffix for path in EXAMPLES} == {".py", ".sh"}
