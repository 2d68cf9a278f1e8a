"""Plugins and presets: checked, described, compared and written with the stages of plugins."""

import pytest

from tests.cli.conftest import ROOT
from tests.plugins.conftest import ONLY

ADAPTED = """
class Doubled:
    '''Twice the logits.'''
    def __call__(self, ids, logits):
        return logits * 2
"""


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("stages:\n  only: {id: 98}\n", encoding="utf-8")
    return path


@pytest.fixture(params=["flag", "variable"])
def given(request, plugin, monkeypatch):
    """The arguments that bring the plugin; none if the variable does."""
    path = str(plugin(ONLY))
    if request.param == "flag":
        return ("--plugin", path)
    monkeypatch.setenv("GENCLI_PLUGIN", path)
    return ()


def test_a_run_takes_plugins_from_flag_and_variable(run, given):
    assert run(*given, "--stage", "only=98", "--max-tokens", 3, "hi").out == "bbb\n"


def test_lint_without_the_plugin_or_with_a_broken_one_refuses_its_stage(gencli, preset, plugin):
    found = gencli("config", "lint", preset)
    assert (found.code, "There is no stage 'only'" in found.err) == (3, True)

    for command in [("lint", "neutral"), ("diff", "neutral", "chat"), ("schema",)]:
        assert gencli("config", *command, "--plugin", plugin("1 / 0")).code == 4, command


def test_the_schema_without_plugins_is_that_of_docs(gencli, monkeypatch):
    monkeypatch.setenv("GENCLI_NO_PLUGINS", "1")
    assert gencli("config", "schema").out == (ROOT / "docs" / "preset.schema.json").read_text()


def test_the_schema_has_installed_stages_and_says_which_are_broken(gencli, install):
    install("only_schema", ONLY, only="Only")
    install("only_broken", "1 / 0", package="other", broken="Only")
    done = gencli("config", "schema")
    assert done.json["$defs"]["only"]["description"] == "Allow one id."
    assert "broken" not in done.json["$defs"]
    assert "other 1.2" in done.err


def test_an_exported_stage_runs_again_and_says_what_it_needs(run, gencli, plugin, tmp_path):
    path = plugin(ONLY)
    done = gencli("config", "export", "--plugin", path, "--stage", "only=98", "--seed", 1, "--model", "fake")
    need = f"The stage only needs `plugin` = {path}, which only a flag can give."
    assert done.out.splitlines()[0] == f"# {need}"
    assert done.err == f"Notice: The stage only needs --plugin {path}, which only a flag can give.\n"
    exported = tmp_path / "exported.yaml"
    exported.write_text(done.out)
    assert run("--preset", exported, "--plugin", path, "--max-tokens", 3, "hi").out == "bbb\n"
    again = gencli("config", "export", "--preset", exported, "--plugin", path)
    assert again.out == done.out


def test_an_exported_stage_of_a_package_names_the_package(gencli, install):
    install("only_export", ONLY, only="Only")
    text = gencli("config", "export", "--stage", "only=98").out
    assert text.startswith("# The stage only needs the package gencli-test 1.2.\n")


def test_an_adapted_stage_that_was_only_named_stays_on(gencli, plugin, tmp_path):
    flags = ("--plugin", f"{plugin(ADAPTED)}:Doubled")
    exported = tmp_path / "exported.yaml"
    exported.write_text(gencli("config", "export", *flags, "--stage", "doubled").out)
    assert "  doubled:\n    enabled: true\n" in exported.read_text()
    chains = [
        gencli("run", *flags, *more, "--show-chain", "--format", "json").json
        for more in (("--stage", "doubled"), ("--preset", exported))
    ]
    assert [[row["stage"] for row in chain] for chain in chains] == [["tail", "doubled", "gumbel"]] * 2
