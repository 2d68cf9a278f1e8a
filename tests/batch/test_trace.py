"""The trace of a batch: of each row what `gencli run` says of it, each row once, however often it was cut."""

import pytest

from gencli.batch.batch_records import Outcome
from gencli.batch.journal import TraceFile
from gencli.errors import GenerationError
from gencli.explain.trace_file import read_trace

CHAIN = ("--temperature", "1.7", "--top-k", "5", "--repetition-penalty", "1.2")


ROWS = [
    {"prompt": "the cat", "seed": 3},
    {"prompt": "a dog", "seed": 4, "n": 3, "id": "dog"},
    {"prompt": "b", "seed": 5, "stages": {"xtc": {"probability": 1, "threshold": 0.05}}, "max_tokens": 20},
    {"prompt": "c", "seed": 6, "regex": "[abc]{3}", "retries": 1, "grammar_backend": "llguidance"},
    {"prompt": "d", "seed": 7, "best_of": 3, "id": "best"},
    {"prompt": "e", "seed": 8, "draft": "ngram", "max_tokens": 30},
]


@pytest.fixture
def traced(bench):
    """Run the input with a trace, and return the batch and its traced texts by row and sample."""

    def run(*flags, rows=ROWS, name="trace.jsonl"):
        bench.write(rows)
        file = bench.folder / name
        done = bench.run(*CHAIN, "--trace", file, *flags)
        return done, {text.key: text for text in read_trace(file.read_text().splitlines())}

    return run


def facts(text):
    """What a trace says of a text but the name of its row."""
    own = ("run", "sample", "texts", "preset", "code", "files")  # those of a run, which can be forked
    records = [{key: value for key, value in record.items() if key not in own} for record in text.records]
    return {key: value for key, value in text.head.items() if key not in own}, records, text.reason


def test_what_can_be_no_trace_is_refused_by_name(bench, monkeypatch):
    cases = [
        (("--trace", "out.jsonl"), "--trace out.jsonl is also the input, the output or the summary"),
        (("--trace", "out.jsonl.journal"), "is also the input, the output"),
        (("--trace", "./in.jsonl"), "is also the input"),
        (("--trace", "s", "--summary", "s"), "is also the input, the output or the summary"),
        (("--trace", "."), "is no regular file"),
        (("--trace", "/dev/null"), "is no regular file"),
        (("--trace", "nowhere/t"), "cannot be written"),
        (("--trace", "old"), "--trace old exists already"),
        (("--trace", "old", "--resume"), "--trace old exists already"),
        (("--trace-top", "3"), "--trace-top is given, but no trace"),
        (("--trace", "t", "--trace-top", "101"), "--trace-top"),
        (("--trace", "t", "--beams", "2"), "a search draws no token"),
    ]
    monkeypatch.chdir(bench.folder)
    bench.write(ROWS[:1])
    (bench.folder / "old").write_text("x")
    for flags, said in cases:
        for left in bench.folder.glob("out.jsonl*"):  # the journal of a run that could not begin its trace
            left.unlink()
        done = bench.call("in.jsonl", "-o", "out.jsonl", "--model", "fake", *flags)
        assert (done.code, said in done.err) == (2, True), (flags, done.err)
        assert (bench.folder / "old").read_text() == "x", flags
        assert not bench.output.exists(), flags


def test_a_trace_is_not_in_the_folder_that_is_the_output(bench):
    bench.write(ROWS[:1])
    done = bench.call(
        bench.input, "-o", f"{bench.folder}/o/", "--model", "fake", "--trace", bench.folder / "o/t"
    )
    assert (done.code, "is in the output, a folder of texts" in done.err) == (2, True)


def test_a_row_cannot_ask_for_a_trace(bench):
    for key in ["trace", "trace_top"]:
        bench.write([{"prompt": "a", key: 3}])
        assert f"{key} is set for the whole run" in bench.run("--overwrite").err, key


def test_a_full_disk_leaves_whole_rows(tmp_path, monkeypatch):
    file = TraceFile(tmp_path / "t")
    size = file.append("a\n")
    with monkeypatch.context() as full:
        full.setattr("gencli.batch.journal.os.write", lambda handle, data: 1)
        with pytest.raises(GenerationError, match="only a part of a row"):
            file.append("bcd\n")
    assert file.append("e\n") == size + 2
    file.close()
    assert (tmp_path / "t").read_text() == "a\ne\n"


def test_an_outcome_without_a_trace_has_no_lines():
    assert Outcome(0, "0", {}).trace == ""
