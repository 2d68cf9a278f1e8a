"""Where values come from: flags, variables, presets, model files, defaults; sides and recorded runs."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from gencli.config.chain_assembly import assemble
from gencli.config.job import make_job
from gencli.config.layers import Recipe, gather_side, refuse_differences
from gencli.config.settings import DEFAULT, FLAG, environment_layer, model_layer, resolve, untraced
from gencli.errors import ConfigError, ModelError, UsageError


def generation_config(folder, **values):
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(values))
    return str(folder)


def test_each_place_wins_over_the_weaker_ones(here, chain, tmp_path, monkeypatch):
    model = generation_config(tmp_path / "model", top_p=0.1)
    here("a.yaml", f"top_p: 0.2\nmodel: {model}\n")
    here("b.yaml", "\ntop_p: 0.3\n")
    assert chain("-m", model) == [("top_p", "p=0.1", "generation_config top_p")]
    assert chain("--preset", "a.yaml") == [("top_p", "p=0.2", "preset a.yaml:1")]
    presets = ("--preset", "a.yaml", "--preset", "b.yaml")
    assert chain(*presets) == [("top_p", "p=0.3", "preset b.yaml:2")]
    monkeypatch.setenv("GENCLI_TOP_P", "0.4")
    assert chain(*presets) == [("top_p", "p=0.4", "environment GENCLI_TOP_P")]
    assert chain(*presets, "--top-p", "0.5") == [("top_p", "p=0.5", "flag --top-p")]


def test_the_users_defaults_lie_between_the_model_and_presets(here, chain, tmp_path, gencli):
    model = generation_config(tmp_path / "model", top_p=0.1)
    here("home/gencli/defaults.yaml", f"top_p: 0.2\nmodel: {model}\n")
    here("a.yaml", "top_p: 0.3\n")
    ((*_, origin),) = found = chain()
    assert found == [("top_p", "p=0.2", origin)]
    assert origin.startswith("user defaults ")
    assert origin.endswith("home/gencli/defaults.yaml:1")
    assert chain("--preset", "a.yaml") == [("top_p", "p=0.3", "preset a.yaml:1")]

    here("home/gencli/defaults.yaml", "top_p: 0.9\nplugin: own.py\n")
    result = gencli("run", "--show-chain")
    assert result.code == 3
    assert "defaults.yaml:2:1: plugin is a flag only" in result.err


def test_spellings_of_a_field_override_each_other(here, chain, gencli):
    for text in ["top_p: 0.9", "stages: {top_p: 0.9}", "stages: {top_p: {p: 0.9}}", "chain: [top_p: 0.9]"]:
        for flags in [("--top-p", "0.5"), ("--stage", "top_p=0.5"), ("--stage", "top_p:p=0.5")]:
            here("a.yaml", text)
            ((stage, value, origin),) = chain("--preset", "a.yaml", *flags)
            assert (stage, value) == ("top_p", "p=0.5"), (text, flags)
            assert origin.startswith(f"flag {flags[0]}"), (text, flags)

    here("a.yaml", "stages:\n  top_k: {k: 9, ties: keep}\n")
    assert [row[1] for row in chain("--preset", "a.yaml", "--top-k", "4")] == ["k=4", 'ties="keep"']

    result = gencli("run", "--top-k", "4", "--stage", "top_k=5", "x")
    assert (result.code, "--top-k and --stage 'top_k=5' both set k" in result.err) == (2, True)


def test_a_penalty_option_wins_over_a_weaker_field_and_yields_to_a_stronger_one(here, chain, gencli):
    here("a.yaml", "stages:\n  presence: {penalty: 1, window: 9}\n")
    assert "window=5" in [row[1] for row in chain("--preset", "a.yaml", "--penalty-window", "5")]
    here("b.yaml", "penalty_window: 5\n")
    found = chain("--preset", "b.yaml", "--stage", "presence:penalty=1,window=9")
    assert "window=9" in [row[1] for row in found]

    for flags, key in ((("--preset", "chat", "--raw"), "chat"), (("--preset", "chat", "--raw"), "system")):
        settings = gencli("config", "show", *flags, "--format", "json").json["settings"]
        assert settings[key] == {"value": {"chat": False}.get(key), "origin": "default"}


def test_a_conflict_between_a_preset_and_a_flag_names_the_line(here, gencli):
    here("a.yaml", "n: 4\n")
    result = gencli("run", "--preset", "a.yaml", "-t", "0", "x")
    assert (result.code, "n (a.yaml:1) 4 with a temperature of 0 (--temperature)" in result.err) == (2, True)

    here("a.yaml", "sampler: greedy\n")
    flags = ("--seed", "1", "--max-tokens", "3", "x", "--model", "fake")
    result = gencli("run", "--preset", "precise", "--preset", "a.yaml", *flags)
    assert (result.code, "these stages change nothing" in result.err) == (0, True), result.err
    result = gencli("run", "--preset", "a.yaml", "-t", "0.5", *flags)
    assert (result.code, "sampler (a.yaml:1) greedy takes the most likely" in result.err) == (2, True)


def test_an_option_may_be_a_variable():
    variables = {
        "GENCLI_N": "3",
        "GENCLI_CHAT": "yes",
        "GENCLI_STREAM": "off",
        "GENCLI_STOP": '["a\\\\n", "b,c"]',
        "GENCLI_STOP_ID": "[1, 2]",
        "GENCLI_BAN": "fox",
        "GENCLI_SEED": "",
        "PATH": "x",
    }
    values = resolve(environment_layer(variables))
    assert [values[key] for key in ("n", "chat", "stream", "stop", "stop_id", "ban", "seed")] == [
        3, True, False, ("a\n", "b,c"), (1, 2), ("fox",), None,
    ]  # fmt: skip

    given = {"GENCLI_TRACE": "t", "GENCLI_TRACE_TOP": "3", "GENCLI_TRACED": "x", "GENCLI_TOP_K": "4"}
    assert untraced(given) == {"GENCLI_TRACED": "x", "GENCLI_TOP_K": "4"}

    with pytest.raises(UsageError, match="GENCLI_MAX_TOKENS is -1"):
        environment_layer({"GENCLI_MAX_TOKENS": "-1"})


def test_a_wrong_variable_is_named_with_exit_code_2(here, gencli, monkeypatch):
    for name, value, said in [
        ("GENCLI_TOP_P", "7", "GENCLI_TOP_P is 7, but has to be a number >= 0 and <= 1."),
        ("GENCLI_TOP_P", "x", "GENCLI_TOP_P: 'x' is not a number."),
        ("GENCLI_CHAT", "maybe", "GENCLI_CHAT is 'maybe', but has to be true or false."),
        ("GENCLI_STOP_REGEX", "[a-z]+", "GENCLI_STOP_REGEX is not a JSON list"),
        ("GENCLI_STOP", "[[1]]", "GENCLI_STOP is a list with other values"),
        ("GENCLI_TEMPRATURE", "1", "The environment variable GENCLI_TEMPRATURE is not that of an option."),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            result = gencli("run", "x")
            assert (result.code, said in result.err) == (2, True), result.err


def test_presets_of_the_flag_replace_those_of_the_variable(here, chain, monkeypatch):
    monkeypatch.setenv("GENCLI_PRESET", '["balanced", "precise"]')
    assert ("temperature", "temperature=0.2") in [row[:2] for row in chain()]
    assert ("temperature", "temperature=1.2") in [row[:2] for row in chain("--preset", "creative")]


def test_a_model_says_how_to_draw_and_what_gencli_lacks_is_said(here, chain, tmp_path):
    model = generation_config(tmp_path / "model", do_sample=False, temperature=0.6, top_k=20)
    ((stage, value, origin),) = chain("-m", model)
    assert (stage, value, origin) == (
        "temperature", "temperature=0.0  (not run: greedy)", "generation_config do_sample=false",
    )  # fmt: skip
    assert chain("-m", model, "-t", "0.6")[0][2] == "flag --temperature"

    layer = model_layer(
        generation_config(tmp_path / "model", typical_p=0.9, penalty_alpha=0.6, num_beams=1, top_k=None)
    )
    assert layer.values == {"typical": 0.9}
    assert [text.rpartition("/")[2] for text in layer.notices] == [
        "generation_config.json asks for penalty_alpha=0.6, for which there is `contrastive_alpha`."
    ]

    with pytest.raises(ModelError, match=r"generation_config.json: top_p is 7, but has to be a number"):
        model_layer(generation_config(tmp_path / "model", top_p=7))

    for name in ["tiny", "fake", "no-such", "no/such", "./no", "no/such/model"]:
        layer = model_layer(name)
        assert layer is None or (layer.values, layer.notices) == ({}, ()), name


def test_a_model_may_ask_for_penalties_on_its_prompt(chain, tmp_path):
    model = generation_config(
        tmp_path / "model", encoder_repetition_penalty=1.25, encoder_no_repeat_ngram_size=3,
        exponential_decay_length_penalty=[30, 1.05], sequence_bias=[[[5, 6], -2.0]],
    )  # fmt: skip
    assert [row[:2] for row in chain("-m", model)] == [
        ("no_repeat_ngram", "n=3"), ("no_repeat_ngram", 'scope="prompt"'),
        ("sequence_bias", "biases=[[[5, 6], -2.0]]"), ("length_decay", "decay=[30, 1.05]"),
        ("repetition", "penalty=0.8"), ("repetition", 'scope="prompt"'),
    ]  # fmt: skip

    folder = generation_config(tmp_path / "model", no_repeat_ngram_size=4, encoder_no_repeat_ngram_size=3)
    layer = model_layer(folder)
    assert (layer.values, layer.stages) == ({"no_repeat_ngram": 4}, ())
    assert "encoder_no_repeat_ngram_size=3 beside no_repeat_ngram_size" in layer.notices[0]
    with pytest.raises(ModelError, match="encoder_repetition_penalty is 'x', but has to be a number above 0"):
        model_layer(generation_config(tmp_path / "model", encoder_repetition_penalty="x"))


def test_nothing_given_is_an_empty_chain_and_later_layers_win():
    settings = resolve(("preset", {"top_p": 0.9, "max_tokens": 5}), (FLAG, {"top_p": "0.5"}))
    assert (settings["top_p"], settings.origin("top_p")) == (0.5, FLAG)
    assert (settings["max_tokens"], settings.origin("max_tokens")) == (5, "preset")
    assert (settings["model"], settings.origin("model")) == ("tiny", DEFAULT)

    job, other = make_job(resolve()), make_job(resolve())
    assert str(job.chain) == ""
    assert job.seed != other.seed  # equal once in 2**32 runs


def test_a_chain_has_what_was_given_and_its_origin():
    assembly = assemble(resolve(("preset", {"top_k": 5}), (FLAG, {"stage": ["top_k:ties=keep"]})))
    assert str(assembly.chain) == 'top_k:k=5,ties="keep"'
    assert [(entry.field, entry.origin) for entry in assembly.of_stage("top_k")] == [
        ("k", "preset"),
        ("ties", FLAG),
    ]

    flags = {
        "penalty_window": 9, "repetition_penalty": 1.2, "stage": ["presence=0.5"], "frequency_penalty": 0,
    }  # fmt: skip
    chain = assemble(resolve((FLAG, flags))).chain
    windows = {name: params.window for name, params in chain}
    assert windows == {"repetition": 9, "presence": 9, "frequency": None}


def test_a_seed_of_0_is_a_seed():
    assert make_job(resolve((FLAG, {"seed": "0"}))).seed == 0


def test_a_switch_that_is_off_leaves_its_contrary():
    assert resolve(("preset", {"raw": True}), (FLAG, {"chat": False}))["raw"]


FAKE = {"model": "fake", "seed": "1"}


def test_a_text_is_a_chain_a_preset_or_a_profile(here):
    for text, chain in [
        ("top_k=40 | top_p=0.9", "top_k=40 | top_p=0.9"),
        ("top_p=0.9 | top_k=40", "top_p=0.9 | top_k=40"),
        (" ", ""),
        ("creative", "presence=0.3 | temperature=1.2 | min_p=0.05"),
        ("preset:creative", "presence=0.3 | temperature=1.2 | min_p=0.05"),
        ("mine.yaml", "top_k=3"),
        ("preset:./mine.yaml", "top_k=3"),
        ("compat:hf", 'top_k:k=50,ties="keep"'),
    ]:
        here("mine.yaml", "top_k: 3")
        assert str(gather_side(text, FAKE, {}).job.chain) == chain, text


def test_a_whole_chain_has_nothing_of_other_layers(here):
    here("home/gencli/defaults.yaml", "temperature: 0.3\nmax_tokens: 7\nstages:\n  dry: 0.8\n")
    side = gather_side("top_k=5", FAKE, {"GENCLI_TOP_P": "0.5", "GENCLI_STOP": "x"})
    assert str(side.job.chain) == "top_k=5"
    assert (side.job.limits.max_tokens, side.job.stops.strings) == (7, ("x",))
    (notice,) = side.notices
    assert notice == (
        "'top_k=5' is the whole chain, without dry (home/gencli/defaults.yaml:4), "
        "temperature (home/gencli/defaults.yaml:1), GENCLI_TOP_P."
    )


def test_a_preset_of_a_side_yields_to_flags_and_what_has_no_part_is_said(here):
    here("mine.yaml", "max_tokens: 5\nstop: [a]\nsampler: multinomial\n")
    job = gather_side("mine.yaml", {**FAKE, "max_tokens": "9"}, {}).job
    assert (job.limits.max_tokens, job.stops.strings, job.method) == (9, ("a",), "multinomial")

    here("mine.yaml", "n: 2\nlogprobs: 3\ndraft: ngram\nretries: 2\njson: true\n")
    side = gather_side("mine.yaml", FAKE, {})
    assert side.notices == (
        "A comparison does not use n (mine.yaml:1), logprobs (mine.yaml:2), retries (mine.yaml:4), "
        "draft (mine.yaml:3).",
    )
    assert (side.job.n, side.job.logprobs, side.job.drafting.drafter) == (1, None, "none")


def test_sides_that_cannot_be_are_refused(here):
    for text, error in [
        ("nothing", ConfigError), ("top_k", ConfigError), ("compat:none", UsageError),
        ("preset:", ConfigError),
    ]:  # fmt: skip
        with pytest.raises(error):
            gather_side(text, FAKE, {})

    for a, b in [
        ("seed: 1", "seed: 2"), ("guidance: 2", "{}"), ("chat: true", "{}"),
        ("max_batch: 2", "max_batch: 3"),
    ]:  # fmt: skip
        here("a.yaml", a)
        here("b.yaml", b)
        sides = [gather_side(f"{name}.yaml", {"model": "fake"}, {}).settings for name in "ab"]
        refuse_differences(sides[0], sides[0])
        with pytest.raises(UsageError, match="for A and .* for B"):
            refuse_differences(*sides)


def test_a_file_that_is_not_recorded_with_its_hash_is_refused(tmp_path):
    schema, other = tmp_path / "s.json", tmp_path / "other.json"
    for file in (schema, other):
        file.write_text("true")
    record = {"path": str(schema), "sha256": sha256(b"true").hexdigest()}
    whole = Recipe(f"model: fake\nseed: 1\njson_schema: {schema}\n", {}, {"json_schema": record})
    assert whole.settings({}, "file")["json_schema"] == str(schema)
    of_other = replace(whole, preset=whole.preset.replace("s.json", "other.json"))
    for recipe, file in ((replace(whole, files={}), schema), (of_other, other)):
        with pytest.raises(ConfigError, match=f"The file has no hash of {file} .json_schema."):
            recipe.settings({}, "file")
    schema.write_text("false")
    with pytest.raises(ConfigError, match="has changed since"):
        whole.settings({}, "file")
