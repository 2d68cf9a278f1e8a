"""What is wrong with a preset is said with its place. Each file's first line says what to expect.

`FILE` in it is the file's own path; ` | ` parts several messages.
"""

from pathlib import Path

from gencli.cli.commands.setting_views import lint_report
from tests.cli.conftest import ROOT

FILES = sorted(((Path(__file__).parents[2] / "config") / "malformed").glob("*.yaml"))


def expected(path):
    line = path.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    shown = str(path.relative_to(ROOT))
    return [part.replace("FILE", shown) for part in line.removeprefix("# expect: ").split(" | ")]


def test_a_fault_is_named_with_its_place(monkeypatch):
    assert len(FILES) >= 40

    for path in FILES:
        with monkeypatch.context() as patch:
            patch.chdir(ROOT)
            found = lint_report([str(path)])
            assert len(found) == len(expected(path)), found
            assert [
                pair for pair in zip(expected(path), found, strict=True) if pair[0] not in pair[1]
            ] == [], path
