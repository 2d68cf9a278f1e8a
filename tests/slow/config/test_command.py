"""`gencli config`: list, show, lint, diff, export, path."""

from tests.cli.conftest import ROOT
from tests.config.test_command import assert_nothing_heavy_is_imported


def test_the_session_in_docs_is_what_the_commands_print(monkeypatch, tmp_path):
    from scripts.refresh_readme import refreshed

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert refreshed(page) == page, "run scripts/refresh_readme.py docs/config.md"


def test_config_imports_nothing_heavy():
    assert_nothing_heavy_is_imported(["show", "--preset", "story"])
