"""A plugin in a run: its arguments, its place in the chain, one row among others."""

from dataclasses import replace

from gencli.plugins.plugin_registry import make_registry
from processors.chain import Chain
from tests.engine.harness import engine, request, texts
from tests.plugins.conftest import ONLY


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


def test_an_installed_one_needs_its_name_only(run, install, tmp_path):
    install("only_run", ONLY, only="Only")
    assert run("--stage", "only:id=99", "--max-tokens", 3, "hi").out == "ccc\n"

    done = run("--stage", "unheard=1", "hi")
    assert done.code == 2
    assert "There is no stage 'unheard'." in done.err
    assert "The stage of a plug-in needs --plugin FILE." in done.err
    preset = tmp_path / "mine.yaml"
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


def test_an_installed_stage_needs_its_name_only_in_a_preset(run, gencli, install, tmp_path):
    install("only_preset", ONLY, only="Only")
    preset = tmp_path / "mine.yaml"
    preset.write_text("chain:\n  - only: 99\n  - top_k: 3\n")
    assert gencli("config", "lint", preset).code == 0
    assert run("--preset", preset, "--max-tokens", 2, "hi").out == "cc\n"


def test_a_batch_whose_rows_switch_a_plugin_on_does_not_say_it_is_off(gencli, plugin, tmp_path):
    for rows in ['{"prompt": "a", "stages": {"only": 97}}\n', '{"prompt": "a"}\n']:
        given = tmp_path / "in.jsonl"
        given.write_text(rows)
        done = gencli("batch", given, "-m", "fake", "--max-tokens", 1, "--plugin", plugin(ONLY))
        assert done.code == 0, rows
        assert ("The stage only of" in done.err) == ("stages" not in rows), rows
