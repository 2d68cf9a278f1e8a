"""Faulty presets, and those that ship."""

from pathlib import Path

from gencli.cli.commands.setting_views import lint_report
from gencli.config.layers import gather_presets
from tests.cli.conftest import FAKE, ROOT
from tests.config.test_presets import MARKS, SHIPPED

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


def test_a_shipped_preset_generates_with_its_values(here, gencli):
    for name in SHIPPED:
        key, value = MARKS[name]
        assert gather_presets(name)[key] == value, name
        flags = ("--preset", name, "--max-tokens", "8", "--seed", "3", "--quiet", "x")
        result = gencli("run", *FAKE, *flags)
        assert (result.code, result.err) == (0, ""), name
        assert result.out.strip(), name
