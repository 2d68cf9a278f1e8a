"""The list of slow tests names tests that there are."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

LISTED = [
    line
    for line in (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_slow_test_is_a_test():
    found = {path: functions(path) for path in {line.partition("::")[0] for line in LISTED}}
    assert [line for line in LISTED if line.partition("::")[2] not in found[line.partition("::")[0]]] == []


def test_no_slow_test_is_listed_twice():
    assert sorted(set(LISTED)) == LISTED
