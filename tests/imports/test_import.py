"""Settings of other systems as presets: values, units and orders kept, the rest named."""

import json

from gencli.config.layers import gather_presets
from gencli.errors import GencliError
from gencli.imports.imported_preset import import_settings, read_settings
from processors.errors import ProcessorsError
from processors.registry import builtin_registry
from tests.config.conftest import gencli, here  # noqa: F401 - fixtures


def test_the_fields_tell_whose_settings_they_are():
    for given, peer in [
        ({"messages": [], "temperature": 1}, "openai"),
        ({"rep_pen": 1.1, "temperature": 1}, "koboldcpp"),
        ({"temp": 1, "rep_pen": 1.1}, "sillytavern"),
        ({"n_predict": 3, "prompt": "x"}, "llama-cpp"),
        ({"transformers_version": "5", "temperature": 1}, "hf"),
        ({"top_p": {"override": 1, "force": False}}, "exl2"),
        ({"sampling_params": {}}, "sglang"),
        ({"prompt": "x", "guided_choice": ["a"]}, "vllm"),
        ("min_p: 0.1\n", "tgw"),
        ("./llama-server --temp 0 \\\n  --top-k 3", "llama-cpp"),
        ("python -m mlx_lm.generate --temp 0.5", "mlx"),
    ]:
        assert read_settings(json.dumps(given) if isinstance(given, dict) else given).peer == peer, given


def test_a_hostile_text_ends_in_our_errors_or_sets_nothing():
    for text in [
        "", "{", "[1]", "5", "- a", "{\"a\": 1", "\0", "a: &a [*a]", "a: !!python/object:os.system x",
        "x --temp 'a", '{"temperature": 1}', '{"a":' * 50 + "1" + "}" * 50, "top_p: {1: 2}\n? [a]\n: b",
        "--temp 3", "a" * 300_000, '{"temperature": 1e999}', '{"messages": 1, "messages": 2}'
    ]:  # fmt: skip
        try:
            said = import_settings(read_settings(text), builtin_registry()).text
        except (GencliError, ProcessorsError) as error:
            said = str(error)
        assert len(said) < 1000, text


def test_wrong_values_and_many_unknown_names_are_named_and_bounded():
    for peer in ["vllm", "openai", "sglang"]:
        wrong = {"temperature": [1], "top_k": "x", "top_p": 7, "min_p": {}, "seed": "a", "stop": 5 * [[]],
                 "logit_bias": 3, "n": -1, "max_tokens": 1e400, "do_sample": "maybe"}  # fmt: skip
        text = json.dumps({**wrong, **{f"field{i}" * 20: i for i in range(500)}}).replace(
            "Infinity", "9" * 300
        )
        found = import_settings(read_settings(text, peer), builtin_registry())
        assert len(found.notes) == 101, peer
        assert max(map(len, found.notes)) < 400, peer
        assert len(found.text.splitlines()) <= 3, peer


def test_what_is_imported_is_a_preset_that_runs(here, gencli):  # noqa: F811
    here("body.json", '{"messages": ["hi"], "temperature": 0.5, "top_k": 5, "repetition_penalty": 1.2}')
    result = gencli("config", "import", "--from", "vllm", "body.json")
    assert result.code == 0
    assert result.err == "Notice: messages is not taken over: a prompt is no setting.\n"
    here("mine.yaml", result.out)
    assert gather_presets("./mine.yaml")["max_tokens"] == 16
    assert gencli("config", "lint", "./mine.yaml").code == 0
    piped = gencli("config", "import", "--from", "vllm", "-", stdin=b"temperature: 0.5")
    assert piped.out.splitlines()[1:] == ["compat: vllm", "temperature: 0.5"]


def test_what_cannot_be_read_is_an_error(here, gencli):  # noqa: F811
    for arguments, code, said in [
        (["--from", "vlm", "x"], 2, "Did you mean 'vllm'?"),
        (["missing.json"], 3, "cannot be read"),
        (["x", "--temp", "1"], 2, "the command line names no known program"),
        ([], 2, "FILE"),
    ]:
        result = gencli("config", "import", *arguments)
        assert (result.code, result.out) == (code, ""), arguments
        assert said in result.err, arguments


def test_a_field_that_asks_for_nothing_gets_no_notice(gencli, here):  # noqa: F811
    here(
        "body.json",
        '{"top_k": 5, "stream": false, "user": "", "best_of": 1, "echo": false, "use_cache": true, '
        '"skip_special_tokens": true, "num_beam_groups": 1, "low_memory": false, "max_length": 20}',
    )
    quiet = gencli("config", "import", "--from", "vllm", "body.json")
    assert (quiet.code, quiet.err) == (0, "")
    here("body.json", '{"top_k": 5, "best_of": 3}')
    assert "best_of is not taken over" in gencli("config", "import", "--from", "vllm", "body.json").err


def test_a_bias_of_minus_infinity_is_a_ban(gencli, here):  # noqa: F811
    biases = ("--logit-bias", "15-inf", "--logit-bias", "16+1.5")
    result = gencli("config", "import", "llama-cli", *biases)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[2:] == ["logit_bias: [[16, 1.5]]", "suppress_ids: [15]"]
