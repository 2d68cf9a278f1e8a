"""docs/structured-line.md names the files that there are, and its example runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "structured-line.md").read_text(encoding="utf-8")
HOME = ROOT / "gencli" / "structured"


def test_the_page_names_every_file_once_or_more():
    files = {path.stem for path in HOME.glob("*.py")} - {"__init__"}
    named = set(re.findall(r"`(\w+)`", PAGE)) | set(re.findall(r"(\w+)\.py\b", PAGE))
    assert files - named == set()


def test_every_step_of_the_page_is_defined_in_its_file():
    steps = re.findall(r"\| (\w+)\([^\n]*\)? -> .*?  (\S+\.py)$", PAGE, re.MULTILINE)
    assert len(steps) == 7
    for function, place in steps:
        path = (ROOT if place.startswith("gencli") else HOME) / place
        assert re.search(rf"^(?:def|class) {function}\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            function
        )


def test_the_example_of_the_page_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
    assert capsys.readouterr().out == ("xgrammar enforces all of this schema.\n{'name': 'Ada', 'age': 36}\n")
