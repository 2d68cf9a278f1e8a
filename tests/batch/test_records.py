"""Progress and summary of a batch."""

from dataclasses import replace

import pytest
import torch

from gencli.batch.batch_options import read_bytes
from gencli.batch.batch_records import BatchSummary, ErrorCount, Outcome, OutcomeCounts, Progress
from gencli.errors import ModelError, UsageError
from gencli.helpers import clock
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import Held, Speed, guess_seconds, plan_capacity, weight_bytes


def outcome(index, *, error=None, reason="length", tokens=10):
    sample = {"text": "x", "finish_reason": reason, "completion_tokens": tokens, "prompt_tokens": 4}
    return Outcome(index, str(index), {**sample, "error": error}, error is not None)


def progress():
    made = Progress(100, before=10, failed_before=1)
    made.start(1000.0)
    made.add_tokens(3, 1001.0, 1.0)
    made.add_tokens(1, 1002.0, 0.5)
    made.add_outcome(outcome(0))
    made.add_outcome(outcome(1, error={"type": "EmptySupport", "message": ""}, reason="error", tokens=None))
    return made


def test_rates_are_those_of_this_process_and_the_line_counts_what_was_there_before():
    assert progress().rates(1002.0) == {
        "seconds": 2.0, "rows_per_second": 1.0, "tokens_per_second": 2.0, "seconds_left": 88.0,
        "occupancy": 0.75,
    }  # fmt: skip
    line = "12 of 100 rows, 1.0 rows/s, 2 tok/s, 1:28 left, 75% full, 2 failed"
    assert progress().line(1002.0) == line
    assert Progress(5).line(0.0) == "0 of 5 rows, 0.0 rows/s, 0 tok/s, 0% full"


def test_the_tally_counts_samples_by_reason_and_error():
    tally = progress().tally
    assert (dict(tally.reasons), dict(tally.errors)) == ({"length": 1, "error": 1}, {"EmptySupport": 1})
    assert (tally.prompt_tokens, tally.completion_tokens, tally.failed) == (8, 10, 1)


def test_errors_are_summed_up_by_message_with_the_first_row_of_each():
    tally = OutcomeCounts()
    for index, message in ((7, "a"), (3, "b"), (5, "b"), (2, "b")):
        tally.add(outcome(index, error={"type": "UsageError", "message": message}, reason="error"))
    assert [(one.count, one.message, one.first_row) for one in tally.frequent] == [(3, "b", 2), (1, "a", 7)]


def test_messages_that_differ_in_every_row_take_bounded_memory():
    tally = OutcomeCounts()
    for index in range(3000):
        error = {"type": "UsageError", "message": f"{index} " + 10_000 * "x"}
        tally.add(outcome(index, error=error, reason="error"))
    assert sum(len(one.message) for one in tally.frequent) < 400_000
    assert tally.errors == {"UsageError": 3000}


def test_a_time():
    for seconds, said in [(0.4, "0:00"), (61, "1:01"), (3723, "1:02:03")]:
        assert clock(seconds) == said, seconds


def test_the_summary_in_words():
    summary = BatchSummary(
        status="complete", rows=1200, done=1200, succeeded=1190, failed=10, resumed=200, prompt_tokens=9,
        prompt_tokens_read=1005, prompt_tokens_copied=4000,
        completion_tokens=12000, finish_reasons={"length": 3}, errors={"InputError": 10}, seconds=75.0,
        rows_per_second=13.3, tokens_per_second=160.0, occupancy=0.91, max_batch=8, seed=4, model="m",
        output="o", error_messages=[ErrorCount("InputError", "This is not JSON.", 8, 3)],
    )  # fmt: skip
    assert list(summary.lines()) == [
        "1,200 of 1,200 rows, 200 from before: 1,190 succeeded, 10 failed, 12,000 tokens in 1:15 "
        "(13.3 rows/s, 160 tok/s, 91% full), seed 4",
        "Prompts: 4,000 tokens copied from the prefix cache, 1,005 read.",
        "8 InputError, first in row 3: This is not JSON.",
        "2 more errors with other messages; `error` in the results has them.",
        "3 texts were cut at a limit; `matched` in the results names the limit.",
    ]
    assert summary.to_dict()["finish_reasons"] == {"length": 3}
    ones = replace(
        summary, rows=1, done=1, succeeded=1, failed=0, resumed=0, prompt_tokens_copied=1,
        completion_tokens=1, finish_reasons={"length": 1}, errors={"InputError": 9},
    )  # fmt: skip
    assert list(ones.lines()) == [
        "1 of 1 row: 1 succeeded, 0 failed, 1 token in 1:15 (13.3 rows/s, 160 tok/s, 91% full), seed 4",
        "Prompts: 1 token copied from the prefix cache, 1,005 read.",
        "8 InputError, first in row 3: This is not JSON.",
        "1 more error with another message; `error` in the results has it.",
        "1 text was cut at a limit; `matched` in the results names the limit.",
    ]


def test_sizes_are_read_or_refused():
    cases = [
        ("4G", 2**32), ("1.5 MiB", 3 * 2**19), ("512m", 2**29), ("100", 100), ("2kb", 2048), ("1T", 2**40),
    ]  # fmt: skip
    for text, size in cases:
        assert read_bytes(text) == size, text
    for text in ["", "G", "-1G", "0", "4X", "nan", "inf"]:
        with pytest.raises(UsageError, match="is not a size"):
            read_bytes(text)


TINY, DRAFT = (read_card(bundled_folder(name)) for name in ("tiny", "tiny-draft"))


def plan(*beside, lanes=1, **options):
    given = {"tokens": 200, "dtype": "float32", "device": "cpu", **options}
    return plan_capacity((Held("", TINY, lanes), *beside), **given)


def test_as_many_samples_run_as_the_memory_has_room_for():
    each = plan().kv_bytes
    assert plan(tokens=400).kv_bytes == 2 * each
    assert plan(dtype="bfloat16").kv_bytes == plan(kv_dtype="bfloat16").kv_bytes == each / 2
    assert plan(kv_memory=5 * each).max_batch == 5
    assert plan(kv_memory=10 * each, lanes=2).max_batch == 5  # guided samples have two
    assert plan(kv_memory=6 * each - 1).max_batch == 5
    assert plan(kv_memory=10**12).max_batch == plan(kv_memory=10**13).max_batch == 64
    assert plan(tokens=10**9).kv_bytes == plan(tokens=1024).kv_bytes  # no more than the context
    for tokens, room in [(1, 256), (256, 256), (257, 512)]:
        assert plan(tokens=tokens).kv_bytes == 1920 * 4 * room, tokens
    with pytest.raises(ModelError, match="there is room for"):
        plan(kv_memory=each - 1)


def test_models_beside_are_counted_each_by_its_own_shape():
    own, draft = plan(), plan(Held("small", DRAFT))
    each = DRAFT.kv_values * 4 * 256
    assert draft.kv_bytes == own.kv_bytes + each
    assert draft.weights == own.weights
    assert draft.beside == (("small", weight_bytes(DRAFT, torch.float32, torch.device("cpu"))),)
    assert plan(Held("small", DRAFT), kv_memory=3 * draft.kv_bytes).max_batch == 3
    two = plan(Held("amateur", DRAFT), Held("small", DRAFT, 0), lanes=2)
    assert two.kv_bytes == 2 * own.kv_bytes + each
    assert [name for name, _ in two.beside] == ["amateur", "small"]
    state = replace(DRAFT, kv_values=None)
    assert plan(Held("mamba", state)).kv_bytes is None


def test_a_guess_of_the_time_counts_reading_arithmetic_and_calls():
    card = read_card(bundled_folder("tiny"))
    asked = {"weights": 100, "prompt_tokens": 0, "output_tokens": 800}
    never = float("inf")
    assert guess_seconds(Speed(50.0, never, 0), card, **asked, batch=8) == 200  # two for each of 100 steps
    once = card.weights.parameters / 4
    assert guess_seconds(Speed(never, once, 0), card, **asked, batch=8) == 3200
    assert guess_seconds(Speed(never, once, 0), card, **asked | {"output_tokens": 0}, batch=8) == 0
    calls = [guess_seconds(Speed(never, never, 1), card, **asked, batch=batch) for batch in (1, 8, 800)]
    assert calls == sorted(calls, reverse=True)
