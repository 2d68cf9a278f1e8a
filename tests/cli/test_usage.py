"""Nothing is ignored in silence, and every refusal says what was given and what is wrong with it."""

from gencli.config.chain_assembly import MARKS
from gencli.config.run_options import OPTIONS, option
from processors.params import describe
from processors.registry import builtin_registry

CONFLICTS = {
    "scope without a penalty": (["--penalty-scope", "prompt"], ["--penalty-scope", "--repetition-penalty"]),
    "window with a penalty that is off": (
        ["--penalty-window", "9", "--repetition-penalty", "1"],
        ["--penalty-window", "no penalty is on"],
    ),
    "scope said twice": (
        ["--penalty-scope", "prompt", "--stage", "presence:penalty=1,scope=output"],
        ["--penalty-scope", "presence:penalty=1"],
    ),
    "field said twice": (["--top-p", "0.9", "--stage", "top_p=0.8"], ["--top-p", "--stage 'top_p=0.8'"]),
    "stage said twice": (["--stage", "top_p=0.9", "--stage", "top_p:p=1.0"], ["top_p=0.9", "top_p:p=1.0"]),
    "list said twice": (
        ["--ban", "a", "--stage", 'ban=["b"]'],
        ["--ban and --stage", "of the stage ban", "Put them into one list"],
    ),
    "stage twice in the order": (
        ["--top-k", "5", "--chain", "top_k,temperature,top_k"],
        ["--chain: The stage top_k stands twice", "a name of its own"],
    ),
    "include-stop without a stop": (["--include-stop"], ["--include-stop", "--stop-regex"]),
    "system without chat": (["--system", "be kind"], ["--system", "--chat"]),
    "system and raw": (["--system", "be kind", "--raw"], ["--system", "--raw"]),
    "chat and raw": (["--chat", "--raw"], ["--chat", "--raw"]),
    "quiet and stats": (["--quiet", "--stats"], ["--quiet", "--stats"]),
    "n with temperature 0": (["-n", "2", "-t", "0"], ["-n 2", "--temperature"]),
    "n with a greedy sampler": (["-n", "2", "--sampler", "greedy"], ["-n 2", "--sampler greedy"]),
    "n with a greedy stage": (["-n", "2", "--stage", "temperature=0"], ["-n 2", "'temperature=0'"]),
    "greedy with a temperature": (
        ["--sampler", "greedy", "-t", "0.5"],
        ["--sampler greedy", "--temperature"],
    ),
    "stream and json": (["--stream", "--format", "json"], ["--stream", "--format json"]),
    "stream and jsonl": (["--stream", "--format", "jsonl"], ["--stream", "--format jsonl"]),
    "min above max": (["--min-tokens", "9", "--max-tokens", "5"], ["--min-tokens", "--max-tokens"]),
    "prompt twice": (["--file", "x"], ["--file", "argument"]),
    "output is the prompt's file": (["--file", "x", "--output", "./x"], ["--output", "--file"]),
    "stdin twice": (["-", "-"], ["twice"]),
}

VALUES = {
    "top-p above 1": (["--top-p", "1.5"], ["--top-p is 1.5", "<= 1"]),
    "penalty 0": (["--repetition-penalty", "0"], ["--repetition-penalty is 0", "1.0 means off"]),
    "seed negative": (["--seed", "-1"], ["--seed is -1", ">= 0"]),
    "seed too large": (["--seed", str(2**64)], ["--seed", "18446744073709551615"]),
    "no number": (["--top-k", "many"], ["--top-k: 'many' is not a whole number"]),
    "temperature nan": (["-t", "nan"], ["--temperature is nan"]),
    "temperature inf": (["-t", "inf"], ["--temperature", "finite"]),
    "sampler": (["--sampler", "best"], ["'best'", "gumbel, multinomial, greedy"]),
    "stage name": (["--stage", "repetitoin=1"], ["'repetitoin'", "Did you mean 'repetition'?"]),
    "stage field": (["--stage", "top_p:boundry=exclusive"], ["'boundry'", "Did you mean 'boundary'?"]),
    "stage tail": (["--stage", "tail=3"], ["tail", "tokenizer"]),
    "ids": (["--suppress-ids", "1,x"], ["--suppress-ids: 'x' is not a token id"]),
    "bias form": (["--logit-bias", "x"], ["--logit-bias: 'x' is not of the form"]),
    "bias of two tokens": (["--logit-bias", "ab=1"], ["'ab'", "2 tokens"]),
    "bias beyond": (["--logit-bias", "999=1"], ["999", "257"]),
    "stop id beyond": (["--stop-id", "999"], ["999", "258"]),
    "stop empty": (["--stop", ""], ["--stop is an empty text"]),
    "stop escape": (["--stop", r"\q"], ["--stop", r"\q"]),
    "stop bytes": (["--stop", "a\udcff"], ["--stop", "UTF-8"]),
    "regex": (["--stop-regex", "("], ["'('"]),
    "regex that matches nothing": (["--stop-regex", "a*"], ["'a*'"]),
    "loop of one": (["--loop", "1"], ["--loop is 1"]),
    "ban empty": (["--ban", ""], ["--ban"]),
    "max-tokens -1": (["--max-tokens", "-1"], ["--max-tokens is -1", ">= 0"]),
    "max-tokens 0": (["--max-tokens", "0"], ["--max-tokens", "0 generates nothing", "--prompt-logprobs"]),
    "max-time 0": (["--max-time", "0"], ["--max-time is 0", "> 0"]),
    "device": (["--device", "cuda"], ["--device is cuda", "cpu"]),
    "dtype": (["--dtype", "bfloat16"], ["--dtype is bfloat16", "float32"]),
    "output": (["--output", "/nowhere/x"], ["/nowhere/x", "No such file"]),
    "prompt bytes": (["a\udcff"], ["not UTF-8"]),
    "prompt too long": (["a" * 2000], ["2000 tokens", "1024"]),
    "prompt empty": ([""], ["prompt is empty"]),
}


def test_options_that_contradict_each_other_are_refused_naming_both(run):
    for name, (arguments, fragments) in CONFLICTS.items():
        result = run(*arguments, "hi")
        assert (result.code, result.out) == (2, ""), name
        assert [fragment for fragment in fragments if fragment not in result.err] == [], name


def test_a_value_that_does_not_fit_is_refused_naming_it(gencli):
    for name, (arguments, fragments) in VALUES.items():
        has_prompt = any(word in fragments[0] for word in ("prompt", "UTF-8", "tokens"))
        result = gencli("run", "--model", "fake", *arguments, *([] if has_prompt else ["hi"]))
        assert (result.code, result.out) == (2, ""), name
        assert [fragment for fragment in fragments if fragment not in result.err] == [], name


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
        result = gencli("run", "-m", "fake", "hello", *arguments)
        assert (result.code, said in result.err) == (2, True), result.err
