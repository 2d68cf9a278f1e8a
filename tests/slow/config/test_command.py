"""`gencli config`: list, show, lint, diff, export, path."""

from gencli.config.layers import gather, gather_presets
from tests.cli.conftest import ROOT
from tests.config.test_command import assert_nothing_heavy_is_imported, run_of
from tests.config.test_presets import SHIPPED
from tests.helpers.quick import quick_path


def test_the_session_in_docs_is_what_the_commands_print(monkeypatch, tmp_path):
    from scripts.refresh_readme import refreshed

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    page = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
    assert refreshed(page, quick_path()) == page, "run scripts/refresh_readme.py docs/presets.md"


def test_config_imports_nothing_heavy():
    assert_nothing_heavy_is_imported(["show", "--preset", "story"])


def test_an_exported_preset_resolves_to_the_same_settings(here, gencli):
    for name in SHIPPED:
        here("exported.yaml", gencli("config", "export", "--preset", name).out)
        one, other = gather({"preset": [name]}, {}), gather_presets("exported.yaml")
        assert run_of(one) == run_of(other), name
