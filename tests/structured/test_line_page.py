"""docs/structured-line.md names the files that there are, and its example runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "structured-line.md").read_text(encoding="utf-8")
HOME = ROOT / "gencli" / "structured"


def test_every_room_of_the_page_lists_its_files():
    rows = re.findall(r"^\| (\w+) \| `(\w+)/` \| (.*) \|$", PAGE, re.MULTILINE)
    assert [room for _, room, _ in rows] == ["read", "check", "rewrite", "audit", "validate"]
    for _, room, listed in rows:
        files = {path.stem for path in (HOME / room).glob("*.py")} - {"__init__"}
        assert set(re.findall(r"`(\w+)`", listed)) == files


def test_every_step_of_the_page_is_defined_in_its_file():
    steps = re.findall(r"\| (\w+)\([^\n]*\)? -> .*?  (\S+)/?(?: +(\w+))?$", PAGE, re.MULTILINE)
    assert len(steps) == 7
    for function, place, stem in steps:
        home = ROOT if place.startswith("gencli") else HOME
        path = home / place if place.endswith(".py") else home / place / f"{stem}.py"
        assert re.search(rf"^(?:def|class) {function}\b", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_example_of_the_page_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
    assert capsys.readouterr().out == ("xgrammar enforces all of this schema.\n{'name': 'Ada', 'age': 36}\n")
