"""What is kept to resume: journal, fingerprint, trace; and number formats in which company changes texts."""

import os
import resource
import shutil
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest
import torch

from gencli.batch.batch_records import Outcome, Record, Row
from gencli.batch.journal import Journal, TraceFile, differences, folder_digest, read_header
from gencli.batch.run_batch import StreamStore
from gencli.errors import GenerationError, UsageError
from gencli.explain.trace_file import read_trace
from gencli.models.decoder.products.dense_products import can_pack, has_tiles
from gencli.models.files.local_models import bundled_folder
from gencli.models.model_runner import ModelSpec
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import Loaded, batch_notices
from gencli.text.tokenizer import ByteTokenizer
from tests.batch.test_command import cut

HEADER = {"fingerprint": {"seed": 1}}


def outcome(index, text="x", *, failed=False):
    return Outcome(index, f"id {index}", {"text": text, "odd": "\ud83d €"}, failed)


def journal(path, *outcomes):
    made = Journal(path, HEADER)
    for one in outcomes:
        made.append(one)
    return made


def pending(made, count, **options):
    rows = (Row(Record(index, ""), str(index)) for index in range(count))
    return [row.record.index for row in made.pending(rows, **options)]


def test_rows_come_back_in_either_order(tmp_path):
    rows = [outcome(3), outcome(0, failed=True), outcome(2**40)]
    made = journal(tmp_path / "j", *rows)
    assert list(made.outcomes(by_row=False)) == rows
    assert [one.index for one in made.outcomes()] == [0, 3, 2**40]
    assert made.counts() == (3, 1)


def test_a_stream_without_a_journal_has_the_order_of_the_input():
    written = []
    store = StreamStore(SimpleNamespace(write=written.append), by_row=True)
    assert pending(store, 4) == [0, 1, 2, 3]
    for one in map(outcome, (2, 0, 1)):
        store.add(one)
        assert (one.index == 2) == (written == [])
    assert [one.index for one in written] == [0, 1, 2]


def test_of_a_row_the_last_entry_counts(tmp_path):
    made = journal(tmp_path / "j", outcome(1, failed=True), outcome(0), outcome(1, "better"))
    assert [(one.index, one.result["text"]) for one in made.outcomes()] == [(0, "x"), (1, "better")]
    assert made.counts() == (2, 0)


def test_pending_rows_are_those_that_lack_an_entry(tmp_path):
    made = journal(tmp_path / "j", outcome(4), outcome(1, failed=True), outcome(2))
    assert pending(made, 6) == [0, 3, 5]
    assert pending(made, 6, with_failed=True) == [0, 1, 3, 5]


def test_a_header_that_is_torn_is_none(tmp_path):
    path = tmp_path / "j"
    assert read_header(path) is None
    path.write_bytes(b'{"gencli_jour')
    assert read_header(path) is None


def test_another_file_is_not_taken_for_a_journal(tmp_path):
    for line in [b"[]\n", b"hello\n", b'{"gencli_journal": 99}\n', b"\xff\n"]:
        (tmp_path / "j").write_bytes(line)
        with pytest.raises(UsageError, match="is not a journal|is a journal of version 99"):
            Journal(tmp_path / "j", HEADER)
        assert (tmp_path / "j").read_bytes() == line, line


def test_a_journal_without_checksums_is_refused_with_the_way_out(tmp_path):
    """As a gencli wrote it whose journals had version 1."""
    old = b'{"gencli_journal": 1, "fingerprint": {}}\n{"row": 0, "failed": false, "id": "0", "result": {}}\n'
    (tmp_path / "j").write_bytes(old)
    with pytest.raises(UsageError, match="version 1, and this gencli has version 2") as raised:
        Journal(tmp_path / "j", HEADER)
    assert "Finish it with the version that started it" in raised.value.hint
    assert (tmp_path / "j").read_bytes() == old


def test_the_line_that_was_changed_is_named(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0, "some text"), outcome(1)).close()
    whole = path.read_bytes()
    for line, text in [(1, b'"seed": 1'), (2, b"some text"), (3, b'"id 1"')]:
        assert whole.count(text) == 1, line
        path.write_bytes(whole.replace(text, text[:-2] + b"7" + text[-1:]))
        with pytest.raises(UsageError, match=f"damaged in line {line}: its checksum is wrong"):
            Journal(path, HEADER)
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 20 + b"\n" + lines[2])
    with pytest.raises(UsageError, match="damaged in line 2"):
        Journal(path, HEADER)


def test_a_row_that_changes_after_the_journal_was_opened_is_not_written(tmp_path):
    path = tmp_path / "j"
    made = journal(path, outcome(0), outcome(1, "some text"))
    path.write_bytes(path.read_bytes().replace(b"some text", b"some test"))
    with pytest.raises(UsageError, match="damaged at byte"):
        list(made.outcomes())


def test_a_full_disk_is_an_error_that_leaves_whole_lines(tmp_path):
    for room in [0, 1, 40]:
        path = tmp_path / f"j{room}"
        made = journal(path, outcome(0))
        size = path.stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, before[1]))
        try:
            with pytest.raises(GenerationError, match="cannot be written"):
                made.append(outcome(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.stat().st_size == size, room
        made.append(outcome(1))
        assert made.counts() == (2, 0), room


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_from_the_beginning(tmp_path):
    (tmp_path / "j").symlink_to("/dev/full")
    with pytest.raises((GenerationError, UsageError)):
        Journal(tmp_path / "j", HEADER)


def test_a_number_of_a_document_that_no_float_holds_is_rounded(tmp_path):
    document = {"x": Decimal("0.12345678901234567891"), "y": Decimal("1e400")}
    made = Journal(tmp_path / "j", HEADER)
    made.append(Outcome(0, "a", {"parsed": document}))
    assert next(made.outcomes()).result == {"parsed": {"x": 0.12345678901234568, "y": "1E+400"}}


def test_a_copied_model_is_the_same_model_until_one_of_its_files_changes(tmp_path):
    copy, own = tmp_path / "copy", folder_digest(bundled_folder("tiny-draft"))
    shutil.copytree(bundled_folder("tiny-draft"), copy, copy_function=shutil.copyfile)
    assert folder_digest(copy) == own
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    for place in (0.0, 0.3, 0.5, 1.0):
        data = bytearray(whole)
        at = 10_000 + int(place * (len(data) - 20_000))
        data[at : at + 200_000] = bytes(byte ^ 1 for byte in data[at : at + 200_000])
        weights.write_bytes(data)
        assert folder_digest(copy) != own, place
    weights.write_bytes(whole)
    assert folder_digest(copy) == own
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert folder_digest(copy) != own


def test_what_changed_is_named_with_both_values():
    before = {"seed": 1, "input": "abc", "gone": True}
    now = {"seed": 2, "input": "abd", "new": [1]}
    assert list(differences(before, now).values()) == [
        "seed was 1 and is 2", "input changed", "gone was True and is None", "new was None and is [1]",
    ]  # fmt: skip
    assert differences(before, before) == {}
    same = {"revision": "a", "weights_sha256": "c"}
    assert differences(same, {**same, "revision": "b"}) == {}


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


ALIKE_ROWS = [{"prompt": f"Row {n}", "max_tokens": 3} for n in range(6)]
SAID = "In bfloat16 a text may depend on what is computed beside it"


def tiny(dtype, *flags):
    return ("--model", "tiny", "--dtype", dtype, "--invariant", "off", "--seed", "1", *flags)


def resumed(bench, dtype, *flags, begun=("--max-batch", "2")):
    """A run that was cut after two rows and is gone on with."""
    bench.write(ALIKE_ROWS)
    cut(bench, 2, *tiny(dtype, *begun))
    return bench.run("--resume", "--no-timings", *tiny(dtype, *flags))


def test_a_runner_says_whether_texts_depend_on_their_company():
    cases = [
        ("cpu", torch.float32, True), ("cpu", torch.float16, True), ("cpu", torch.bfloat16, False),
        ("cuda", torch.float32, False), ("cuda", torch.float16, False), ("cuda", torch.bfloat16, False),
        ("mps", torch.float16, False),
    ]  # fmt: skip
    for device, dtype, is_promised in cases:
        spec = ModelSpec("m", 2, 8, torch.device(device), dtype)
        assert spec.is_batch_invariant == is_promised, (device, dtype, is_promised)


def test_it_is_said_what_helps_on_the_device():
    for device, cure in [("cpu", "`dtype` = float32"), ("cuda", "`invariant` = on")]:
        runner = FakeRunner(2)
        runner._spec = replace(runner.spec, device=torch.device(device), dtype=torch.bfloat16)
        (said,) = batch_notices(Loaded(runner, ByteTokenizer()))
        assert said.startswith(SAID), device
        assert cure in said, device


def test_a_batch_says_it_once(bench):
    bench.write(ALIKE_ROWS)
    for dtype, count in [("bfloat16", 1), ("float32", 0)]:
        assert bench.call(bench.input, *tiny(dtype)).err.count(SAID) == count, dtype


@pytest.mark.skipif(
    not can_pack(torch.bfloat16) or has_tiles(), reason="needs a CPU that computes bfloat16, without AMX"
)
def test_with_invariant_kernels_a_run_in_bfloat16_goes_on_in_other_company(bench):
    kept = ("--invariant", "on")
    done = resumed(bench, "bfloat16", "--max-batch", "4", *kept, begun=("--max-batch", "2", *kept))
    assert (done.code, SAID in done.err) == (0, False)


def test_a_run_does_not_go_on_in_another_number_format_that_auto_takes(bench, monkeypatch):
    """As on another machine, whose CPU computes bfloat16."""
    from gencli.batch import batch_setup as prepare

    bench.write(ALIKE_ROWS)
    cut(bench, 2, *tiny("auto"))
    monkeypatch.setattr(prepare, "pick_dtype", lambda *given, **named: (torch.bfloat16, ""))
    assert "number format was 'float32' and is 'bfloat16'" in bench.refused("--resume", *tiny("auto"))


def test_permission_needs_a_run_to_go_on_with(bench):
    assert "Add --resume" in bench.refused("--allow-other-batch", rows=ALIKE_ROWS)
