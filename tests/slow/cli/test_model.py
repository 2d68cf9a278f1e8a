"""Model folders on the command line: the bundled model runs, a broken folder is one clear message."""

import json
import shutil
import warnings

from tests.cli.test_model import COMPANY, SHORT, TINY, UNSTEADY


def test_where_neighbours_or_drafts_may_change_a_text_a_run_says_so(gencli):
    for flags, is_said in [
        (("hi",), False),
        (("hi", "yo"), True),
        (("hi", "-n", 2), True),
        (("hi", "--best-of", 2), True),
        (("hi", "--draft", "ngram"), True),
        (("hi", "--draft", "ngram", "--verify", "rejection"), False),
        (("hi", "--choice", "yes"), True),
        (("hi", "--choice", "yes", "--jump-forward", "off"), False),
        (("hi", "yo", "--quiet"), False),
    ]:
        done = gencli("run", *UNSTEADY, "--seed", 1, "--max-tokens", 2, *flags)
        assert (done.err.count(COMPANY) == 1) == is_said, flags
        assert COMPANY not in gencli("run", "--dtype", "float32", "--max-tokens", 2, "hi", "yo").err, flags


def test_an_end_that_no_token_has_ends_no_text_and_is_said(gencli, tmp_path):
    for flags in [(), ("--min-tokens", "4"), ("--json",), ("--beams", "2")]:
        folder = shutil.copytree(TINY, tmp_path / str(len(flags)) / str(flags))
        made = folder / "generation_config.json"
        plain = gencli("run", "--model", folder, *SHORT, *flags)
        given = json.loads(made.read_text())
        made.write_text(json.dumps(given | {"eos_token_id": [*given["eos_token_id"], 2048, -1]}))
        result = gencli("run", "--model", folder, *SHORT, *flags)
        assert (result.code, result.out) == (plain.code, plain.out), flags
        assert "Token id 2048 is declared to end texts, but the model has none" in result.err, flags
        assert "Token id -1" in result.err, flags


def test_a_device_that_is_not_here_is_named_and_steps_run_ahead_on_a_gpu_only(gencli):
    result = gencli("run", "--device", "cuda:99", *SHORT)
    assert result.code == 5
    assert "cuda:99" in result.err

    refused = gencli("run", "--async", *SHORT)
    assert (refused.code, "--async" in refused.err, "runs on cpu" in refused.err) == (2, True, True)
    assert gencli("run", "--no-async", *SHORT).out == gencli("run", *SHORT).out


def test_the_bundled_model_is_the_default_and_chat_uses_its_template(gencli):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        default = gencli("run", *SHORT)
    assert default.code == 0
    assert len(default.err.splitlines()) == 2
    assert gencli("run", "--model", str(TINY), *SHORT).out == default.out

    record = gencli("run", "--format", "json", *SHORT).json
    chat = gencli("run", "--format", "json", "--chat", "--system", "Be brief.", *SHORT).json
    assert chat["prompt"] == record["prompt"]
    assert chat["prompt_tokens"] > record["prompt_tokens"]
