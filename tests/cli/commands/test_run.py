"""gencli run and gencli score: options, searches, guidance, drafts, log-probabilities."""

import json

import pytest

from gencli.config.chain_assembly import MARKS
from gencli.config.run_options import OPTIONS, option
from gencli.core.events import Drafted, Finish, Timings
from gencli.results.run_results import draft_lines
from processors.params import describe
from processors.registry import builtin_registry
from tests.cli.test_result_writers import valid

CONFLICTS = [
    (["--penalty-scope", "prompt"], "--penalty-scope", "--repetition-penalty"),
    (["--penalty-window", "9", "--repetition-penalty", "1"], "--penalty-window", "no penalty is on"),
    (
        ["--penalty-scope", "prompt", "--stage", "presence:penalty=1,scope=output"],
        "--penalty-scope",
        "presence:penalty=1",
    ),
    (["--top-p", "0.9", "--stage", "top_p=0.8"], "--top-p", "--stage 'top_p=0.8'"),
    (["--stage", "top_p=0.9", "--stage", "top_p:p=1.0"], "top_p=0.9", "top_p:p=1.0"),
    (
        ["--ban", "a", "--stage", 'ban=["b"]'],
        "--ban and --stage",
        "of the stage ban",
        "Put them into one list",
    ),
    (
        ["--top-k", "5", "--chain", "top_k,temperature,top_k"],
        "--chain: The stage top_k stands twice",
        "another name",
    ),
    (["--include-stop"], "--include-stop", "--stop-regex"),
    (["--system", "be kind"], "--system", "--chat"),
    (["--system", "be kind", "--raw"], "--system", "--raw"),
    (["--chat", "--raw"], "--chat", "--raw"),
    (["--quiet", "--stats"], "--quiet", "--stats"),
    (["-n", "2", "-t", "0"], "-n 2", "--temperature"),
    (["-n", "2", "--sampler", "greedy"], "-n 2", "--sampler greedy"),
    (["-n", "2", "--stage", "temperature=0"], "-n 2", "'temperature=0'"),
    (["--sampler", "greedy", "-t", "0.5"], "--sampler greedy", "--temperature"),
    (["--stream", "--format", "json"], "--stream", "--format json"),
    (["--stream", "--format", "jsonl"], "--stream", "--format jsonl"),
    (["--min-tokens", "9", "--max-tokens", "5"], "--min-tokens", "--max-tokens"),
    (["--file", "x"], "--file", "argument"),
    (["--file", "x", "--output", "./x"], "--output", "--file"),
    (["-", "-"], "twice"),
]

VALUES = [
    (["--top-p", "1.5"], "--top-p is 1.5", "<= 1"),
    (["--repetition-penalty", "0"], "--repetition-penalty is 0", "1.0 means off"),
    (["--seed", "-1"], "--seed is -1", ">= 0"),
    (["--seed", str(2**64)], "--seed", "18446744073709551615"),
    (["--top-k", "many"], "--top-k: 'many' is not a whole number"),
    (["-t", "nan"], "--temperature is nan"),
    (["-t", "inf"], "--temperature", "finite"),
    (["--sampler", "best"], "'best'", "gumbel, multinomial, greedy"),
    (["--stage", "repetitoin=1"], "'repetitoin'", "Did you mean 'repetition'?"),
    (["--stage", "top_p:boundry=exclusive"], "'boundry'", "Did you mean 'boundary'?"),
    (["--stage", "tail=3"], "tail", "tokenizer"),
    (["--suppress-ids", "1,x"], "--suppress-ids: 'x' is not a token id"),
    (["--logit-bias", "x"], "--logit-bias: 'x' is not of the form"),
    (["--logit-bias", "ab=1"], "'ab'", "2 tokens"),
    (["--logit-bias", "999=1"], "999", "257"),
    (["--stop-id", "999"], "999", "258"),
    (["--stop", ""], "--stop is an empty text"),
    (["--stop", r"\q"], "--stop", r"\q"),
    (["--stop", "a\udcff"], "--stop", "UTF-8"),
    (["--stop-regex", "("], "'('"),
    (["--stop-regex", "a*"], "'a*'"),
    (["--loop", "1"], "--loop is 1"),
    (["--ban", ""], "--ban"),
    (["--max-tokens", "-1"], "--max-tokens is -1", ">= 0"),
    (["--max-tokens", "0"], "--max-tokens", "0 generates nothing", "--prompt-logprobs"),
    (["--max-time", "0"], "--max-time is 0", "> 0"),
    (["--device", "cuda"], "--device is cuda", "cpu"),
    (["--dtype", "bfloat16"], "--dtype is bfloat16", "float32"),
    (["--output", "/nowhere/x"], "/nowhere/x", "No such file"),
    (["a\udcff"], "not UTF-8"),
    (["a" * 2000], "2000 tokens", "1024"),
    ([""], "prompt is empty"),
]


def test_options_that_contradict_each_other_are_refused_naming_both(run):
    for arguments, *fragments in CONFLICTS:
        run(*arguments, "hi").refused(*fragments)


def test_a_value_that_does_not_fit_is_refused_naming_it(gencli):
    for arguments, *fragments in VALUES:
        has_prompt = any(word in fragments[0] for word in ("prompt", "UTF-8", "tokens"))
        gencli("run", "--model", "fake", *arguments, *([] if has_prompt else ["hi"])).refused(*fragments)


def test_greedy_beside_other_values(run):
    # A sweep over temperatures reaches 0 with the sampler still named.
    assert run("--sampler", "multinomial", "-t", "0", "--max-tokens", "3", "hi").code == 0

    result = run("-t", "0", "--top-k", "5", "--max-tokens", "3", "hi")
    assert result.code == 0
    assert result.err.count("change nothing: top_k") == 1


OF_STAGES = [entry for entry in OPTIONS if entry.stage and not entry.when]


def test_options_of_stages_are_declared_by_the_stages():
    for entry in OF_STAGES:
        about = describe(builtin_registry().spec(entry.stage).params)[entry.field]
        declared = (about["doc"], about["default"], about["bounds"])
        assert (entry.help, entry.default, entry.bounds) == declared, entry

    stages = {entry.stage for entry in OPTIONS if entry.stage}
    assert set(builtin_registry().names()) - stages - MARKS == {"tail", "grammar"}


def test_what_is_typed_becomes_a_value():
    for key, typed, value in [
        ("logit_bias", ["42=1.5", r"\n=-inf", "a=b=2"], ((42, 1.5), ("\n", float("-inf")), ("a=b", 2.0))),
        ("allow_ids", ["1, 2", "3"], (1, 2, 3)),
        ("stop", [r"a\n", r"\\n"], ("a\n", r"\n")),
        ("stop_id", ["7"], (7,)),
        ("temperature", "1e-3", 0.001),
        ("max_tokens", 9, 9),
    ]:
        assert option(key).value(typed) == value, key


def test_the_order_of_the_chain_is_an_option(gencli):
    stages = ["--ban", "x", "--presence-penalty", "1", "-t", "0.5", "--top-k", "4", "--seed", "1"]
    order = ["--chain", "top_k,temperature,penalties"]
    rows = gencli("run", *stages, *order, "--show-chain", "--format", "json").json
    assert [row["stage"] for row in rows][1:5] == ["ban", "top_k", "temperature", "presence"]
    result = gencli("run", "-m", "fake", *stages, *order, "hello", "--max-tokens", "4")
    assert result.code == 0
    assert "presence runs after top_k" in result.err

    for arguments, said in [
        (["--chain", "top_k,constrain", "--top-k", "4", "--ban", "x"], "top_k runs before ban"),
        (["--chain", "top_k", "--top-k", "4", "-t", "2"], "leaves out temperature"),
        (["--chain", "top_k=4"], "'top_k=4' is not a stage"),
        (["--chain", "scale", "--temperature-last"], "--chain and --temperature-last"),
    ]:
        gencli("run", "-m", "fake", "hello", *arguments).refused(said)


PROMPT = "the cat bade each big deaf chief a day"


def test_the_text_is_the_best_and_n_gives_more(run):
    one = run(PROMPT, "--beams", 3, "--max-tokens", 12)
    record = run(PROMPT, "--beams", 3, "-n", 2, "--max-tokens", 12, "--format", "json").json
    assert one.out.rstrip("\n") == record["texts"][0].rstrip("\n")
    assert record["sampler"] == "beams"
    assert record["score"] == [entry["score"] for entry in record["candidates"][:2]]
    assert len(record["candidates"]) == 3

    greedy = run(PROMPT, "-t", 0, "--max-tokens", 20, "--repetition-penalty", 1.3)
    assert run(PROMPT, "--beams", 1, "--max-tokens", 20, "--repetition-penalty", 1.3).out == greedy.out


def test_the_best_of_samples_are_those_that_n_draws_by_their_mean_logprob(run):
    flags = (PROMPT, "--seed", 4, "--max-tokens", 12, "--format", "json")
    drawn = run(*flags, "-n", 5).json
    best = run(*flags, "--best-of", 5, "-n", 2).json
    assert sorted(entry["text"] for entry in best["candidates"]) == sorted(drawn["texts"])
    scores = [entry["score"] for entry in best["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert best["texts"] == [entry["text"] for entry in best["candidates"][:2]]
    for entry in best["candidates"]:
        assert entry["score"] == pytest.approx(entry["logprob"] / entry["completion_tokens"], rel=1e-3)
        assert all(entry[key] == float(f"{entry[key]:.4g}") for key in ("score", "logprob"))


def test_what_does_not_go_together_is_refused_by_name(run, gencli):
    for flags, names in [
        (("--beams", 3, "-t", 0.5, "--top-k", 4), ("--beams", "--temperature", "--top-k")),
        (("--beams", 3, "-t", 0), ("--beams", "--temperature")),
        (("--beams", 3, "--sampler", "greedy"), ("--beams", "--sampler")),
        (("--beams", 3, "--stage", "top_k=4"), ("--beams", "--stage")),
        (("--beams", 3, "--chain", "adjust,temperature"), ("--beams", "--chain")),
        (("--beams", 3, "--best-of", 4), ("--beams", "--best-of")),
        (("--beams", 3, "--retries", 1, "--regex", "a+"), ("--beams", "--retries")),
        (("--beams", 3, "--draft", "ngram"), ("--beams", "--draft")),
        (("--beams", 3, "--guidance", 2), ("--beams", "--guidance")),
        (("--beams", 3, "--contrast", "tiny-draft"), ("--beams", "--contrast")),
        (("--beams", 3, "-n", 4), ("--beams", "-n")),
        (("--beams", 3, "--max-batch", 2), ("--beams", "--max-batch")),
        (("--beams", 9), ("--beams", "--max-batch")),
        (("--length-penalty", 2), ("--length-penalty", "--beams")),
        (("--early-stopping",), ("--early-stopping", "--beams")),
        (("--best-of", 3, "-t", 0), ("--best-of", "--temperature")),
        (("--best-of", 3, "--sampler", "greedy"), ("--best-of", "--sampler")),
        (("--best-of", 3, "--retries", 1, "--regex", "a+"), ("--best-of", "--retries")),
        (("--best-of", 3, "-n", 4), ("--best-of", "-n")),
    ]:
        run(PROMPT, *flags).refused(*names)

    gencli("chat", "--model", "fake", "--beams", 2).refused("--beams")


def test_a_search_replaces_what_a_weaker_layer_says_of_the_draw(run, tmp_path):
    preset = tmp_path / "draw.yaml"
    preset.write_text("temperature: 0.7\ntop_p: 0.9\nsampler: multinomial\n")
    plain = run(PROMPT, "--beams", 3, "--max-tokens", 12)
    result = run(PROMPT, "--beams", 3, "--max-tokens", 12, "--preset", preset)
    assert result.out == plain.out
    assert "A beam search draws nothing, so these stages change nothing: top_p" in result.err


def test_rows_search_draw_and_choose_in_one_batch(gencli, tmp_path):
    rows = [
        {"prompt": PROMPT},
        {"prompt": PROMPT, "beams": 3, "length_penalty": 2.0},
        {"prompt": PROMPT, "best_of": 4, "n": 2},
        {"prompt": PROMPT, "beams": 3, "temperature": 0.5},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--model", "fake", "--allow-ids", "97,98,99,100,257", "--seed", 1, "--max-tokens", 9)
    found = gencli("batch", source, *flags).lines
    assert [row["sampler"] for row in found[:3]] == ["gumbel", "beams", "gumbel"]
    assert [len(row["candidates"] or ()) for row in found[:3]] == [0, 3, 4]
    assert len(found[2]["texts"]) == 2
    assert "temperature would have no effect" in found[3]["error"]["message"]
    alone = gencli("run", PROMPT, *flags, "--beams", 3, "--length-penalty", 2, "--format", "json").json
    assert (found[1]["text"], found[1]["candidates"]) == (alone["text"], alone["candidates"])


SEARCH = ("--contrastive-alpha", 0.6)


def test_the_text_is_written_as_it_is_chosen_and_recorded(run):
    text = run(PROMPT, *SEARCH, "--max-tokens", 12, "--stream")
    record = run(PROMPT, *SEARCH, "--max-tokens", 12, "--format", "json").json
    assert text.out.rstrip("\n") == record["text"].rstrip("\n")
    assert "cannot be streamed" not in text.err
    assert (record["sampler"], record["candidates"], record["score"]) == ("contrastive", None, None)
    assert record["search"] == {"contrastive_alpha": 0.6, "contrastive_k": 4}


def test_one_candidate_is_the_most_likely_token(run):
    for stages in [(), ("--repetition-penalty", 1.3), ("--ban", "e")]:
        found = run(PROMPT, *SEARCH, "--contrastive-k", 1, "--max-tokens", 12, *stages)
        assert found.out == run(PROMPT, "-t", 0, "--max-tokens", 12, *stages).out, stages


def test_what_does_not_go_with_a_contrastive_search_is_refused_by_name(run, gencli):
    for flags, names in [
        ((*SEARCH, "--beams", 3), ("--contrastive-alpha", "--beams")),
        ((*SEARCH, "--best-of", 3), ("--contrastive-alpha", "--best-of")),
        ((*SEARCH, "-n", 3), ("--contrastive-alpha", "-n")),
        ((*SEARCH, "--retries", 1, "--regex", "a+"), ("--contrastive-alpha", "--retries")),
        ((*SEARCH, "--sampler", "multinomial"), ("--contrastive-alpha", "--sampler")),
        ((*SEARCH, "--draft", "ngram"), ("--contrastive-alpha", "--draft")),
        ((*SEARCH, "--guidance", 2), ("--contrastive-alpha", "--guidance")),
        ((*SEARCH, "--contrast", "tiny-draft"), ("--contrastive-alpha", "--contrast")),
        ((*SEARCH, "--dola", "low"), ("--contrastive-alpha", "--dola")),
        ((*SEARCH, "--trace", "t.jsonl"), ("--contrastive-alpha", "--trace")),
        ((*SEARCH, "--max-batch", 3), ("--contrastive-k", "--max-batch")),
        ((*SEARCH, "--contrastive-k", 9), ("--contrastive-k", "--max-batch")),
        (("--contrastive-k", 3), ("--contrastive-k", "--contrastive-alpha")),
        (("--contrastive-alpha", 1.5), ("--contrastive-alpha",)),
        (("--penalty-alpha", 0.6), ("--penalty-alpha", "--contrastive-alpha")),
    ]:
        run(PROMPT, *flags).refused(*names)


TINY = ("run", "--model", "tiny", "--dtype", "float32", "--chat", "--seed", "2", "--max-tokens", "16")


HAPPY, SAD = "Tell a story about a happy dog.", "Tell a story about a sad dog."


def test_what_does_not_go_with_guidance_is_refused(run, gencli):
    for options, said in [
        (("--guidance", "-1"), "--guidance is -1, but has to be a number >= 0"),
        (("--guidance", "inf"), "--guidance is inf, but has to be a number >= 0 and <= 1e+06."),
        (("--negative", "x"), "--negative is given, but there is no guidance"),
        (("--negative", "", "--guidance", "2"), "negative prompt is empty"),
        (("--guidance", "2", "--contrast", "fake"), "--guidance and --contrast cannot be used together"),
        (("--contrast-alpha", "0.2"), "--contrast-alpha is given, but there is no contrast"),
        (("--contrast-beta", "2"), "--contrast-beta is given, but there is no contrast"),
        (("--contrast", ""), "--contrast is empty"),
        (("--dola", "low", "--guidance", "2"), "--dola and --guidance cannot be used together"),
        (("--dola", "middle"), "'middle' is neither low, high nor layers such as 2,4,6"),
        (("--dola", "low"), "gives no logits of its layers"),
    ]:
        run("abc", *options).refused(said)

    gencli("run", "abc", "--model", "tiny", "--contrast", "fake").refused(
        "fake cannot be the amateur of tiny: their vocabularies differ. Token 0 is", code=5
    )


REPEATED = "abc abd abc abd abc"
FORTY = ("--seed", "1", "--max-tokens", "40", "--ignore-eos")

FAILS = """
from dataclasses import dataclass

from processors import Params, Phase, Processor, param


@dataclass(frozen=True)
class SlowParams(Params):
    by: float = param(0.0, "How much.")


class Slow(Processor[SlowParams]):
    name = "slow"
    phase = Phase.ADJUST
    Params = SlowParams
    sequential = True

    def apply(self, logits, rows):
        return logits
"""


def test_the_record_counts_drafts_by_position(run):
    options = ("--draft", "ngram", "--draft-tokens", "3", "--format", "json")
    found = valid(run(REPEATED, *FORTY, *options).json)["speculation"]
    assert found["drafter"] == "ngram"
    assert 40 - sum(found["accepted"]) <= found["forwards"] <= 40
    assert found["tokens_per_forward"] == pytest.approx(40 / found["forwards"], abs=0.001)
    assert len(found["proposed"]) == len(found["accepted"]) <= 3
    assert all(a <= p for a, p in zip(found["accepted"], found["proposed"], strict=True))
    record = valid(run(REPEATED, "-n", "2", *FORTY, *options).json)
    assert len(record["speculation"]) == 2
    assert valid(run(REPEATED, *FORTY, "--format", "json").json)["speculation"] is None


def test_a_stage_that_needs_every_outcome_takes_no_drafts_and_is_named(run, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(FAILS)
    options = ("--plugin", str(path), "--stage", "slow=1", "--draft", "ngram", "--draft-tokens", "2")
    found = run(REPEATED, *FORTY, *options)
    assert "Drafts (ngram): none were made." in found.err
    assert "The stage slow needs each token before the next, so its texts took no drafts." in found.err
    record = valid(run(REPEATED, *FORTY, *options, "--format", "json").json)["speculation"]
    assert (record["held_by"], record["proposed"]) == ("slow", [])


def test_what_drafting_takes_and_gains_is_said(run):
    for seconds, is_said in [(0.9, False), (1.1, True)]:
        drafted = Drafted(10, (10,), (10,), draft_seconds=seconds, verify_seconds=1.0)
        finish = Finish("1", 0, "", "eos", None, None, 3, 20, Timings(0, 0, 0), drafted=drafted)
        assert any("leave out `draft`" in line for line in draft_lines([finish], "x")) is is_said, seconds

    for plain, seconds, said in [
        (3, 0.3, "1.60 times plain steps (3 timed)."),
        (3, 0.18, "0.96 times plain"),
        (2, 0.1, "rest 1.50 s."),
    ]:
        drafted = Drafted(14, (6,), (6,), 0.0, 1.5, timed=24, plain=plain, plain_seconds=seconds)
        finish = Finish("1", 0, "", "eos", None, None, 3, 24, Timings(0, 0, 0), drafted=drafted)
        lines = [*draft_lines([finish], "x")]
        assert said in lines[0], plain
        assert any("leave out `draft`" in line for line in lines) is ("0.96" in said), plain

    for tried, hits, is_said in [(200, 9, True), (200, 10, False), (199, 0, False)]:
        drafted = Drafted(tried, (tried, 1), (hits, 0), 0.0, 1.0)
        finish = Finish("1", 0, "", "eos", None, None, 3, tried + hits, Timings(0, 0, 0), drafted=drafted)
        lines = [*draft_lines([finish], "x")]
        assert any(f"accepted {hits} of {tried} times" in line for line in lines) is is_said, (tried, hits)

    options = ("--draft", "ngram", "--format", "json")
    found = valid(run(REPEATED, "--seed", "1", "--max-tokens", "100", "--temperature", "0", *options).json)
    assert found["speculation"]["speedup"] > 0


def test_what_drafts_cannot_be_is_refused(run):
    for options, code, said in [
        (("--draft-tokens", "3"), 2, "--draft-tokens is given, but there is no drafter"),
        (("--draft-min-p", "0.5"), 2, "--draft-min-p is given, but there is no drafter"),
        (("--draft", "ngram", "--draft-tokens", "0"), 2, "--draft-tokens is 0, but has to be a number >= 1"),
        (("--draft", "ngram", "--draft-tokens", "many"), 2, "'many' is neither a whole number nor auto"),
        (("--draft", "ngram", "--draft-min-p", "2"), 2, "--draft-min-p is 2"),
        (("--draft", ""), 2, "--draft is empty"),
        (("--draft", "tiny-draf"), 5, "Did you mean 'tiny-draft'?"),
        (("--draft", "early-exit"), 2, "the model fake:258:0 has no layers"),
        (("--draft", "early-exit:x"), 2, "'x' is no number of layers"),
    ]:
        run(REPEATED, *FORTY, *options).refused(said, code=code)

    for options, said in [
        (("--verify", "rejection"), "--verify is given, but there is no drafter"),
        (("--verify-threshold", "0.5"), "--verify-threshold is given, but there is no drafter"),
        (("--draft", "ngram", "--verify", "typical"), "--verify: 'typical' is not one of match, rejection"),
        (("--draft", "ngram", "--verify-threshold", "0.5"), "is for lossy-threshold, but --verify is match"),
        (
            ("--draft", "ngram", "--verify", "rejection", "--verify-threshold", "0.5"),
            "--verify-threshold is for lossy-threshold, but --verify is rejection",
        ),
        (
            ("--draft", "ngram", "--verify", "lossy-threshold", "--verify-threshold", "0"),
            "--verify-threshold is 0",
        ),
    ]:
        run(REPEATED, *FORTY, *options).refused(said)


def test_a_preset_may_say_how_to_draft_and_verify(run, tmp_path):
    preset = tmp_path / "lax.yaml"
    preset.write_text("draft: ngram\ndraft_tokens: 2\nverify: lossy-threshold\nverify_threshold: 0.05\n")
    lax = run(REPEATED, *FORTY, "--preset", preset)
    matched = run(REPEATED, *FORTY, "--preset", preset, "--verify", "match")
    assert lax.out != matched.out == run(REPEATED, *FORTY).out

    preset = tmp_path / "fast.yaml"
    preset.write_text("draft: ngram\ndraft_tokens: 2\n")
    assert "Drafts (ngram)" in run(REPEATED, *FORTY, "--preset", preset).err
    preset.write_text("draft: suffix\ndraft_tokens: auto\ndraft_min_p: 0.1\n")
    assert "Drafts (suffix)" in run(REPEATED, *FORTY, "--preset", preset).err


def test_the_convention_is_printed_with_the_numbers(gencli):
    strided = ["--convention", "strided", "--window", "8", "--stride", "4"]
    done = gencli("score", *strided, stdin=b"Once upon a time\n")
    assert "convention strided (window 8, stride 4)" in done.out
    assert "bits per byte" in done.out
    gencli("score", "--tokens", "1", stdin=b"Once\n").refused("tokens")


def test_a_prompt_alone_is_scored_and_a_chat_shows_scores(gencli):
    done = gencli("run", "--prompt-logprobs", "0", "--max-tokens", "0", "--format", "json", "Once upon")
    record = done.json
    assert (record["text"], record["completion_tokens"], record["prompt_logprobs"][0]) == ("", 0, None)
    assert record["prompt_logprobs"][-1]["rank"] == 1

    done = gencli("chat", "-t", "0", "--max-tokens", "2", "--logprobs", "0", stdin=b"Hello\n")
    assert "processed" in done.err


def test_what_does_not_go_with_scores_is_refused_by_name(gencli):
    for flags, said in [
        (["--logprobs", "1", "-q"], ["--quiet", "--logprobs"]),
        (["--max-tokens", "0"], ["--max-tokens", "--prompt-logprobs"]),
        (["--max-tokens", "0", "--prompt-logprobs", "1", "-n", "2"], ["--max-tokens", "-n"]),
        (["--logprobs", "1", "--finish-open", "--json"], ["--logprobs", "--finish-open"]),
    ]:
        gencli("run", *flags, "Once").refused(*said)
