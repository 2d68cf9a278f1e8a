"""docs/contributing/structure.md names each step of structured output with its file, and its example runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "contributing" / "structure.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## From a schema")[2].partition("\n## ")[0]


def test_every_step_of_the_page_is_defined_in_its_file():
    steps = re.findall(r"\| (\w+)\([^\n]*\)? -> .*?  (\S+)$", SECTION, re.MULTILINE)
    assert len(steps) == 7
    for function, file in steps:
        path = ROOT / (file if "/" in file else f"gencli/structured/{file}.py")
        assert re.search(rf"^(?:def|class) {function}\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            file
        )


def test_the_example_of_the_page_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1], {})
    assert capsys.readouterr().out == ("xgrammar enforces all of this schema.\n{'name': 'Ada', 'age': 36}\n")
