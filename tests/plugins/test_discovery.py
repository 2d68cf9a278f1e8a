"""Plugins from packages and files: found, named by their source, refused when a name is taken."""

import sys

import pytest

from gencli.errors import PluginError, UsageError
from gencli.plugins.discovery import installed_plugins, parse_plugin
from gencli.plugins.plugin_registry import PluginRegistry, make_registry
from processors.chain import Chain
from processors.errors import UnknownStage
from tests.plugins.conftest import HEAD, ONLY, PARAMS, STAGE


def test_an_installed_plugin_is_a_stage_of_its_package_unless_switched_off(install, monkeypatch):
    install("only_installed", ONLY, only="Only")
    registry = PluginRegistry()
    assert "only" not in registry.names()
    assert registry.spec("only").source == "gencli-test 1.2"
    assert "only" in registry.names()
    assert not registry.is_builtin("only")

    with pytest.raises(UnknownStage, match="Did you mean 'only'"):
        PluginRegistry().spec("onlyy")
    install("only_lazy", "raise RuntimeError", package="lazy", lazy="Only")
    Chain.parse("top_k=3 | temperature=0.5", PluginRegistry())
    assert "only_lazy" not in sys.modules, "imported without being named"
    assert len(installed_plugins()) == 2
    monkeypatch.setenv("GENCLI_NO_PLUGINS", "1")
    assert installed_plugins() == ()
    with pytest.raises(UnknownStage):
        PluginRegistry().spec("only")


def test_two_packages_with_one_name_are_both_named_and_so_is_a_wrong_name(install):
    install("only_first", ONLY, only="Only")
    install("only_second", ONLY, package="other", only="Only")
    with pytest.raises(PluginError, match=r"gencli-test 1\.2") as caught:
        PluginRegistry().spec("only")
    assert "other 1.2" in caught.value.message
    install("only_misnamed", ONLY, package="misnamed", onlyy="Only")
    with pytest.raises(PluginError, match=r"'only'.*'onlyy'"):
        PluginRegistry().spec("onlyy")


def test_a_built_in_name_stays_with_the_built_in_stage(install):
    code = ONLY.replace('"only"', '"top_k"')
    install("only_taken", code, top_k="Only")
    registry = PluginRegistry()
    assert registry.spec("top_k").source == "built-in"
    with pytest.raises(PluginError, match="built-in"):
        registry.add(registry.installed[0])


def test_the_one_stage_of_a_file_needs_no_name_and_one_of_several_does(plugin):
    path = plugin(ONLY)
    assert make_registry([str(path)]).spec("only").source == str(path)

    path = plugin(ONLY + STAGE.replace("Only(", "Other(").replace('"only"', '"other"'))
    with pytest.raises(PluginError, match="2 stages: Only, Other") as caught:
        make_registry([str(path)])
    assert f"{path}:Only" in caught.value.hint
    assert make_registry([f"{path}:Other"]).spec("other").name == "other"

    path = plugin(HEAD + "from processors.stages.truncation import TopK\n" + PARAMS + STAGE)
    assert "only" in make_registry([str(path)])

    path = plugin(ONLY)
    with pytest.raises(PluginError, match="Two stages have the name 'only'"):
        make_registry([str(path), f"{path}:Only"])

    path = plugin("from __future__ import annotations\n" + ONLY)
    assert Chain.parse("only=3", make_registry([str(path)])).to_list() == [{"only": {"id": 3}}]


def test_text_that_is_no_plugin_is_a_usage_error():
    for text in ["nonsense", "", ":Only", "module:", "a:b c", "file.txt"]:
        with pytest.raises(UsageError, match=r"path\.py, path\.py:Class or module:Class"):
            parse_plugin(text)
