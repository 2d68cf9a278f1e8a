"""A plugin in runs, batches, presets and commands: its arguments, its place, what is said of it."""

import re
from dataclasses import replace

import pytest

from gencli.plugins.plugin_registry import make_registry
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.params import describe
from processors.testing import CHECKS
from tests.cli.conftest import ROOT
from tests.engine.harness import engine, request, texts
from tests.plugins.conftest import HEAD, ONLY, PARAMS, STAGE


def test_its_arguments_are_said_as_those_of_any_stage(run, plugin):
    done = run("--plugin", plugin(ONLY), "--stage", "only=98", "--max-tokens", 5, "hi")
    assert (done.code, done.out) == (0, "bbbbb\n")

    for stage, message in [
        ("only=x", "--stage 'only=x': id is \"x\", but has to be a whole number"),
        ("only=-2", "id is -2, but has to be a number >= -1"),
        ("only:idd=3", "Did you mean 'id'?"),
    ]:
        done = run("--plugin", plugin(ONLY), "--stage", stage, "hi")
        assert done.code == 2, stage
        assert message in done.err, stage

    assert "only" in run("--plugin", plugin(ONLY), "--max-tokens", 1, "hi").err


def test_an_installed_one_needs_its_name_only(run, gencli, install, tmp_path):
    install("only_run", ONLY, only="Only")
    assert run("--stage", "only:id=99", "--max-tokens", 3, "hi").out == "ccc\n"
    preset = tmp_path / "mine.yaml"
    preset.write_text("chain:\n  - only: 99\n  - top_k: 3\n")
    assert gencli("config", "lint", preset).code == 0
    assert run("--preset", preset, "--max-tokens", 2, "hi").out == "cc\n"
    exported = gencli("config", "export", "--stage", "only=98").out
    assert exported.startswith("# The stage only needs the package gencli-test 1.2.\n")

    done = run("--stage", "unheard=1", "hi")
    assert done.code == 2
    assert "There is no stage 'unheard'." in done.err
    assert "The stage of a plug-in needs --plugin FILE." in done.err
    preset.write_text("stages:\n  unheard: 1\n")
    done = run("--preset", preset, "hi")
    assert done.code == 3
    assert "If it belongs to a plug-in, that has to be given as well." in done.err
    assert "plug-in" not in run("--stage", "top_q=1", "hi").err


def test_its_place_in_the_chain_is_shown_and_set(run, plugin):
    done = run("--plugin", plugin(ONLY), "--stage", "only=98", "--temperature", 2, "--show-chain")
    stages = [line.split()[:2] for line in done.out.splitlines()]
    assert stages.index(["constrain", "only"]) < stages.index(["scale", "temperature"])

    arguments = ("--plugin", plugin(ONLY), "--stage", "only=98", "--stage", "top_k=3")
    assert run(*arguments, "--chain", "only,top_k", "--max-tokens", 2, "hi").out == "bb\n"
    refused = run(*arguments, "--chain", "top_k,only", "hi")
    assert refused.code == 2
    assert "top_k runs before only" in refused.err

    done = run("--plugin", plugin(ONLY), "--stage", "only=98", "--format", "json", "--max-tokens", 1, "hi")
    assert {"only": {"id": 98}} in done.json["chain"]


def test_each_row_of_a_batch_has_its_own_values(plugin):
    registry = make_registry([str(plugin(ONLY))])

    def asked(key, chain):
        return replace(request("hi", key=key, max_tokens=4), chain=Chain.parse(chain, registry))

    requests = [asked("a", "only=97"), asked("b", "only=98"), asked("c", "")]
    together = texts(requests, on=engine(registry=registry))
    alone = {k: v for one in requests for k, v in texts([one], on=engine(registry=registry)).items()}
    assert together == alone
    assert together["a", 0] == "aaaa"
    assert together["b", 0] == "bbbb"


def test_a_preset_may_name_its_stage_but_not_its_code(run, plugin, tmp_path):
    preset = tmp_path / "mine.yaml"
    preset.write_text("stages:\n  only: {id: 98}\n")
    assert run("--plugin", plugin(ONLY), "--preset", preset, "--max-tokens", 3, "hi").out == "bbb\n"
    assert run("--preset", preset, "hi").code == 3

    preset = tmp_path / "mine.yaml"
    preset.write_text(f"plugin: {plugin(ONLY)}\n")
    done = run("--preset", preset, "hi")
    assert done.code == 3
    assert "a file must not be able to run code" in done.err


def test_a_batch_whose_rows_switch_a_plugin_on_does_not_say_it_is_off(gencli, plugin, tmp_path):
    for rows in ['{"prompt": "a", "stages": {"only": 97}}\n', '{"prompt": "a"}\n']:
        given = tmp_path / "in.jsonl"
        given.write_text(rows)
        done = gencli("batch", given, "-m", "fake", "--max-tokens", 1, "--plugin", plugin(ONLY))
        assert done.code == 0, rows
        assert ("The stage only of" in done.err) == ("stages" not in rows), rows


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


def test_lint_without_the_plugin_or_with_a_broken_one_refuses_its_stage(gencli, preset, plugin):
    found = gencli("config", "lint", preset)
    assert (found.code, "There is no stage 'only'" in found.err) == (3, True)

    for command in [("lint", "neutral"), ("diff", "neutral", "chat"), ("schema",)]:
        assert gencli("config", *command, "--plugin", plugin("1 / 0")).code == 4, command


def test_the_schema_has_installed_stages_and_says_which_are_broken(gencli, install, monkeypatch):
    install("only_schema", ONLY, only="Only")
    install("only_broken", "1 / 0", package="other", broken="Only")
    done = gencli("config", "schema")
    assert done.json["$defs"]["only"]["description"] == "Allow one id."
    assert "broken" not in done.json["$defs"]
    assert "other 1.2" in done.err
    monkeypatch.setenv("GENCLI_NO_PLUGINS", "1")
    assert gencli("config", "schema").out == (ROOT / "docs" / "preset.schema.json").read_text()


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


def test_list_has_phase_name_sentence_and_source_in_the_order_of_a_run(gencli, plugin):
    path = plugin(ONLY)
    done = gencli("stages", "list", "--plugin", path)
    rows = {line.split()[1]: line for line in done.out.splitlines()}
    assert done.code == 0
    assert rows["top_k"].split()[0] == "truncate"
    assert "Keep the k most likely tokens." in rows["top_k"]
    assert rows["top_k"].endswith("built-in")
    assert rows["only"].startswith("constrain")
    assert "Allow one id." in rows["only"]
    assert rows["only"].endswith(str(path))

    names = [line.split()[1] for line in gencli("stages", "list").out.splitlines()[1:]]
    builtin = [spec.name for spec in BUILTIN]
    assert [name for name in names if name in builtin] == builtin

    done = gencli("stages", "list", "--plugin", plugin("1 / 0"))
    assert done.code == 0
    assert "ZeroDivisionError" in done.out.splitlines()[-1]


def test_show_has_all_there_is_to_know(gencli, plugin):
    for spec in BUILTIN:
        done = gencli("stages", "show", spec.name)
        assert done.code == 0, spec
        for word in ("Formula", "Reference", "Example", "Elsewhere", *describe(spec.params)):
            assert word in done.out, spec

    done = gencli("stages", "show", "only", "--plugin", plugin(ONLY))
    assert "The one id that may be chosen" in done.out
    assert ">= -1" in done.out
    assert "--stage only=1" in done.out

    done = gencli("stages", "show", "topk")
    assert done.code == 2
    assert "Did you mean 'top_k'?" in done.err


def test_check_of_a_sound_plugin_passes(gencli, plugin):
    done = gencli("stages", "check", plugin(ONLY), "--stage", "only=5")
    assert (done.code, done.err) == (0, "")
    assert "12 passed, 0 failed" in done.out
    assert all(check.__name__ in done.out for check in CHECKS)

    assert gencli("stages", "check", "top_p").code == 0

    done = gencli("stages", "check", plugin(ONLY.replace("(self, logits, rows)", "(self)")))
    assert done.code == 4
    assert "Expected: apply(self, logits, rows)" in done.err

    assert gencli("stages", "check", "nothing").code == 2


PICKY = """
    def __post_init__(self):
        Params.__post_init__(self)
        if self.id not in (-1, 77):
            from processors.errors import ParamError
            raise ParamError("id has to be 77.")
"""


def test_values_to_try_are_asked_for_where_none_can_be_guessed(gencli, plugin):
    path = plugin(HEAD + PARAMS + PICKY + STAGE)
    asked = gencli("stages", "check", path)
    assert asked.code == 4
    assert "--stage only:key=value" in asked.err
    assert gencli("stages", "check", path, "--stage", "only=77").code == 0


PAGE = ROOT / "docs" / "plugins.md"
PAGE_CODE = re.findall("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_code_of_the_page_keeps_the_contract(gencli, run, plugin):
    path = plugin(PAGE_CODE[0])
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
