"""The plugin that docs/plugins.md shows is one."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


PAGE = ROOT / "docs" / "plugins.md"


CODE = re.findall("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_code_of_the_page_keeps_the_contract(gencli, run, plugin):
    path = plugin(CODE[0])
    assert gencli("stages", "check", path).code == 0
    done = run("--plugin", path, "--stage", "max_run=1", "--seed", 1, "--max-tokens", 8, "hi")
    assert not re.search(r"(.)\1", done.out.strip())


def test_the_commands_of_the_page_print_what_it_shows(gencli, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = re.findall(
        "```console\n\\$ gencli (.*?)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert len(shown) == 2
    for command, output in shown:
        assert gencli(*command.split()).out == output
