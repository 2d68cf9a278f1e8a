"""What a run writes: text, blocks, records, the summary, notices."""

import json
from hashlib import sha256

import jsonschema

from gencli.cli.result_writers import LiveWriter
from gencli.cli.usage import command_help
from gencli.core.events import Error, Token
from gencli.models.files.local_models import bundled_folder
from gencli.results.run_results import Results
from tests.cli.conftest import ROOT

SCHEMA = json.loads((ROOT / "docs" / "run-output.schema.json").read_text(encoding="utf-8"))
SHORT = ("--seed", "1", "--max-tokens", "12")


def valid(document):
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_records_are_as_the_schema_says(run):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    record = valid(run("hi", *SHORT, "-t", "0.8", "--format", "json").json)
    assert record["id"] == "1"
    assert record["finish_reason"] == "length"
    assert record["matched"] == "max_tokens"
    assert (record["prompt_tokens"], record["completion_tokens"]) == (2, 12)
    assert (record["seed"], record["model"]) == (1, "fake")
    assert {"temperature": {"temperature": 0.8}} in record["chain"]

    array = valid(run("hi", "yo", *SHORT, "--format", "json").json)
    lines = [valid(line) for line in run("hi", "yo", *SHORT, "--format", "jsonl").lines]
    texts = {record["prompt"]: record["text"] for record in array}
    assert texts == {record["prompt"]: record["text"] for record in lines}
    assert list(texts) == ["hi", "yo"]

    record = valid(run("hi", "-n", "3", *SHORT, "--format", "json").json)
    assert len(set(record["texts"])) == 3
    assert record["completion_tokens"] == [12, 12, 12]

    record = valid(run("hi", *SHORT, "--logit-bias", "a=-inf", "--format", "json").json)
    assert {"bias": {"bias": [["a", "-inf"]]}} in record["chain"]
    assert "a" not in record["text"]


def test_records_have_token_ids_on_request(run, gencli):
    for flags in (("hi",), ("hi", "-n", "2"), ("hi", "yo"), ("a" * 2000, "hi")):
        plain, asked = (
            run(*flags, *SHORT, "--format", "json", *more).json for more in ((), ("--token-ids",))
        )
        valid(asked)
        pairs = zip(*(one if isinstance(one, list) else [one] for one in (plain, asked)), strict=True)
        for before, now in pairs:
            prompt, ids = now.pop("prompt_token_ids"), now.pop("token_ids")
            assert now.keys() == before.keys()
            assert prompt == [*now["prompt"].encode()]
            counts = now["completion_tokens"] or 0
            assert ([len(one) for one in ids] if "texts" in now else len(ids)) == counts
    assert "--format json, jsonl or yaml" in gencli("run", "--token-ids", "hi").err
    for flag in (("--parsed",), ("--select", "")):
        for other in (("--token-ids",), ("--color", "rank")):
            gencli("run", "--json", *flag, *other, "hi").refused(flag[0], other[0])


def test_ids_of_a_record_hold_the_stop_that_the_text_lacks(run):
    record = valid(run("hi", "--seed", "1", "--stop", r"\n", "--format", "json", "--token-ids").json)
    assert record["matched"] == "\n"
    assert bytes(record["token_ids"]).decode("utf-8", "replace") == record["text"] + "\n"


def test_stdout_is_the_text_and_one_newline(run):
    text = run("hi", *SHORT, "--format", "json").json["text"]
    assert run("hi", *SHORT).out.rstrip("\n") == text.rstrip("\n")
    assert run("hi", *SHORT).out == run("hi", *SHORT, "--no-stream").out

    assert run("hi", *SHORT, "--quiet").err == ""
    assert "Error" in run("hi", "a" * 2000, *SHORT, "--quiet").err

    err = run("hi", *SHORT, "--stats", "--threads", "2").err
    assert [word for word in ("load:", "float32", "2 threads", "prefill:") if word not in err] == []


def test_blocks_of_several_prompts_come_in_order_and_a_stop_is_cut(run):
    record = valid(run("hi", "--seed", "1", "--stop", r"\n", "--format", "json").json)
    assert (record["finish_reason"], record["matched"]) == ("stop", "\n")
    assert "\n" not in record["text"]
    kept = run("hi", "--seed", "1", "--stop", r"\n", "--include-stop", "--format", "json").json
    assert kept["text"] == record["text"] + "\n"

    result = run("hi", "yo\nyo", "-n", "2", *SHORT)
    labels = [line for line in result.out.splitlines() if line.startswith("==>")]
    assert labels == ["==> 1.1: hi <==", "==> 1.2: hi <==", "==> 2.1: yo yo <==", "==> 2.2: yo yo <=="]
    assert result.out == run("hi", "yo\nyo", "-n", "2", *SHORT, "--no-stream").out
    assert result.out == run("hi", "yo\nyo", "-n", "2", *SHORT, "--max-batch", "1").out


def test_the_summary_has_tokens_reason_and_a_seed_that_gives_the_text_again(run):
    result = run("hi", *SHORT)
    assert "12 tokens" in result.err
    assert "length, seed 1" in result.err
    assert "--max-tokens 12" in result.err

    first = run("hi", "--max-tokens", "40")
    seed = first.err.split("seed ")[1].split()[0]
    assert run("hi", "--max-tokens", "40", "--seed", seed).out == first.out
    assert run("hi", "--max-tokens", "40").out != first.out


def test_output_is_written_to_the_file_and_replaces_it_unless_the_run_fails(run, tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old" * 100)
    result = run("hi", *SHORT, "--output", path)
    assert result.out == ""
    assert path.read_text(encoding="utf-8") == run("hi", *SHORT).out

    path = tmp_path / "out.txt"
    path.write_text("old")
    assert run("hi", "--logit-bias", "999=1", "--output", path).code == 2
    assert path.read_text() == "old"


def test_one_prompt_that_fails_does_not_lose_the_others(run):
    for form in ["text", "jsonl"]:
        result = run("hi", "a" * 2000, *SHORT, "--format", form)
        assert result.code == 7, form
        assert "prompt 2: The prompt has 2000 tokens" in result.err, form
        if form == "jsonl":
            records = {record["prompt"][:2]: valid(record) for record in result.lines}
            assert records["aa"]["finish_reason"] == "error", form
            assert "2000 tokens" in records["aa"]["error"]["message"], form
            assert records["hi"]["finish_reason"] == "length", form


def test_a_request_that_fails_while_it_runs_is_exit_6(gencli):
    # Only <eos> is allowed, and ignore_eos forbids it: no token is left.
    result = gencli("run", "--model", "fake", "--allow-ids", "257", "--ignore-eos", "hi", "--format", "json")
    assert result.code == 6
    assert valid(result.json)["error"]["type"] == "EmptySupport"
    assert "Error: " in result.err
    assert "Traceback" not in result.err


def test_show_chain_prints_values_with_their_origin_and_generates_nothing(gencli):
    arguments = ["--top-p", "0.9", "--stage", "top_p:boundary=exclusive", "--top-k", "0"]
    penalties = ["--repetition-penalty", "1.1", "--penalty-scope", "prompt"]
    result = gencli("run", "--show-chain", "--model", "nowhere", *arguments, *penalties)
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert result.code == 0
    assert lines == [
        "phase stage value origin",
        "constrain tail ids that the tokenizer lacks model",
        "adjust repetition penalty=1.1 flag --repetition-penalty",
        'adjust repetition scope="prompt" flag --penalty-scope',
        "truncate top_k k=0 (off) flag --top-k",
        "truncate top_p p=0.9 flag --top-p",
        "truncate top_p boundary=\"exclusive\" flag --stage 'top_p:boundary=exclusive'",
        "draw gumbel default",
    ]

    rows = gencli("run", "--show-chain", "-t", "0", "--top-k", "5", "--format", "json").json
    assert {
        "phase": "truncate", "stage": "top_k", "value": "k=5  (not run: greedy)", "origin": "flag --top-k",
    } in rows  # fmt: skip

    rows = gencli("run", "--show-chain", "-t", "0", "--format", "json").json
    assert (rows[-1]["stage"], rows[-1]["origin"]) == ("greedy", "temperature 0")


def test_the_record_says_which_weights_it_was(gencli, run):
    record = valid(gencli("run", "hi", *SHORT, "--model", "tiny-draft", "--format", "json").json)
    weights = bundled_folder("tiny-draft") / "model.safetensors"
    assert record["weights_sha256"] == sha256(weights.read_bytes()).hexdigest()
    assert record["model_revision"] is None
    assert valid(run("hi", *SHORT, "--format", "json").json)["weights_sha256"] is None


class Shown:
    """Takes what a live view draws and writes."""

    size = (40, 6)
    is_due = True

    def __init__(self):
        self.lines, self.written, self.name = [], "", "shown"

    def show(self, *lines):
        self.lines = [line.plain for line in lines]

    def erase(self):
        self.lines = []

    def write(self, text):
        self.written += text


def live(samples):
    shown, results = Shown(), Results(["hi"], samples)
    writer = LiveWriter(shown, results, shown, None, lambda row, sample, text: shown.write(text))

    def tell(*events):
        for event in events:
            results.add(event)
            writer.add(event)

    return shown, tell


def token(sample):
    return Token("1", sample, f"text {sample}", (1,))


def ended(sample):
    return Error("1", sample, "X", "x", f"text {sample}")


def test_a_text_that_is_complete_before_its_turn_keeps_its_line():
    shown, tell = live(3)
    tell(token(0), token(1), ended(1))
    assert shown.written == ""
    assert shown.lines == ["[1.1] text 0", "[1.2] text 1", "1 more"]
    tell(ended(0))
    assert shown.written == "==> 1.1: hi <==\ntext 0\n\n==> 1.2: hi <==\ntext 1\n"
    assert shown.lines == ["1 more"]


def test_texts_without_a_line_are_counted_and_those_that_run_come_first():
    shown, tell = live(20)
    tell(*map(token, range(1, 9)), *map(ended, range(1, 4)))
    assert shown.lines == [*(f"[1.{number}] text {number - 1}" for number in (5, 6, 7, 8, 9)), "15 more"]

    shown, tell = live(6)
    tell(*map(token, range(6)))
    assert shown.lines == [f"[1.{number}] text {number - 1}" for number in range(1, 7)]


def test_a_document_or_text_that_is_cut_is_told_once(run):
    result = run("--regex", "a{90}", "--max-tokens", "5", "hi")
    assert result.code == 6
    assert result.err.count("--max-tokens") == 1
    assert "The shortest output that was found has 90 tokens, but there is room for 5" in result.err

    result = run("--regex", "a{90}", "--max-tokens", "5", "--partial", "hi")
    assert result.err.count("--max-tokens") == 1
    assert "Cut at --max-tokens 5" in run("--max-tokens", "5", "hi").err


def test_samples_that_are_all_the_same_or_as_long_as_the_grammar_are_told_once(run):
    result = run("--choice", "ab", "--choice", "cd", "--min-tokens", "9", "-n", "4", "hi")
    assert result.err.count("The grammar allows nothing more") == 1
    assert "min_tokens did not make 4 of 4 texts longer" in result.err

    same = ("--top-k", "1", "--max-tokens", "4", "-n", "3")
    assert run(*same, "hi").err.count("All 3 samples are the same text.") == 1
    assert "All 3 samples are the same text for 2 of 2 prompts." in run(*same, "hi", "ho").err
    assert "the same text" not in run("--max-tokens", "9", "-n", "3", "hi").err


def test_no_page_shows_a_default_in_python():
    pages = [(ROOT / "docs" / "reference" / name).read_text() for name in ("options.md", "stages.md")]
    for text in (command_help(), *pages):
        assert not [word for word in ("default: ()", "(,)", "None)", "True)", "False)") if word in text]
