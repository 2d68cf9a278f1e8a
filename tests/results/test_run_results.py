"""Results of a run: texts grow with its events, the exit code says how samples ended, rates are counted."""

from dataclasses import replace

import pytest

from gencli.config.job import make_job
from gencli.config.settings import resolve
from gencli.core.events import Error, Finish, Reading, Timings, Token, ValidationResult, by_sample
from gencli.results.run_record import RunInfo, errors, record, summary
from gencli.results.run_results import Meter, ProgressRate, Results, failure, token_ids, tokens_per_second
from processors.chain import Chain
from processors.errors import StageFailure


def finish(sample=0, text="ab", reason="eos", *, request="1", tokens=2, timings=(0.0, 0.0, 0.0), **rest):
    return Finish(request, sample, text, reason, None, None, 3, tokens, Timings(*timings), **rest)


def error(sample=0, kind="GenerationError", request="1"):
    return Error(request, sample, kind, "It failed.", "a")


INVALID = ValidationResult(("no number",), written="x", attempts=2)


def test_a_text_grows_until_its_end_says_what_it_is():
    results = Results(["hi"], 2)
    for event in (Reading("1", 0, 1, 3), Token("1", 0, "a", (97,)), Token("1", 0, "c", (99,))):
        row = results.add(event)
    assert (row.texts, row.running, row.is_done) == (["ac", ""], {0}, False)
    results.add(finish(0, "ab"))
    results.add(finish(1, "b"))
    assert (row.texts, row.running, row.is_done) == (["ab", "b"], set(), True)


def test_the_exit_code_is_that_of_the_ends():
    for ends, code in (
        ([finish(0), finish(1)], 0),
        ([finish(0), error(1)], 7),
        ([error(0), finish(1, verdict=INVALID)], 6),
        ([error(0, StageFailure.__name__), error(1, StageFailure.__name__)], 4),
        ([error(0, StageFailure.__name__), error(1)], 6),
        ([finish(0, reason="interrupted"), error(1)], 130),
    ):
        results = Results(["hi"], 2)
        for end in ends:
            results.add(end)
        assert results.exit_code == code, (ends, code)


def test_an_invalid_text_is_shown_where_partial_ones_are():
    for is_partial, shown in ((True, "x"), (False, None)):
        results = Results(["hi"], 1, is_partial=is_partial)
        row = results.add(finish(verdict=INVALID))
        assert row.shown(0) == shown, (is_partial, shown)
        (failed,) = results.failures
        said = "The output is not valid (2 attempts): no number."
        assert (failed.type, failed.message) == ("InvalidOutput", said), (is_partial, shown)


def test_the_speed_counts_tokens_after_the_first_of_each_sample():
    ends = [finish(tokens=5, timings=(0.5, 2.0, 1.0)), finish(tokens=3, timings=(0.5, 1.0, 2.0))]
    assert tokens_per_second(ends) == 6 / 2.0
    assert tokens_per_second([finish(tokens=1)]) is None
    cut = [replace(ends[0], completion_tokens=50, closing_tokens=45), ends[1]]
    assert tokens_per_second(cut) == tokens_per_second(ends)


def test_a_sample_without_a_token_in_its_time_has_failed():
    results = Results(["hi"], 2)
    late = replace(finish(text="", reason="length", tokens=0), matched="max_time")
    row = results.add(late)
    assert row.shown(0) is None
    results.add(replace(late, sample=1))
    assert results.exit_code == 6
    assert {(failed.type, failed.message) for failed in results.failures} == {
        ("Timeout", "`max_time` passed before the first token.")
    }
    assert failure(finish(reason="length", tokens=1)) is None


def test_samples_that_end_alike_count_as_many():
    begun, rest = finish(0, "ab", "interrupted"), finish(1, "", "interrupted", tokens=0, more=8)
    for late in (False, True):
        last = replace(rest, reason="length", matched="max_time") if late else rest
        one, each = Results(["hi"], 10), Results(["hi"], 10)
        for results, events in ((one, (begun, last)), (each, by_sample((begun, last)))):
            for event in events:
                row = results.add(event)
            assert row.is_done
        assert one.exit_code == each.exit_code
        assert one.failures == each.failures
        assert len(one.failures) == 9 * late
        info = RunInfo("fake", Chain(), make_job(resolve(("flag", {"seed": 1}))))
        assert [*summary(one, info)] == [*summary(each, info)]
        assert [*errors(one)] == [*errors(each)]
        info = replace(info, job=replace(info.job, n=10))
        assert record(one.rows[0], info) == record(each.rows[0], info)


def test_at_its_end_a_sample_has_what_belongs_to_the_tokens_of_its_last_attempt():
    def collected(*events):
        ids = token_ids()
        for event in events:
            ids.add(event)
        return [ids.of(sample) for sample in range(3)]

    for end in (finish(0, tokens=2), Error("1", 0, "E", "m", "", 2)):
        events = (token("1", 3), token("1", 1, sample=1), token("1", 2), end)
        assert collected(*events) == [(0, 1), (0,), ()], end
    assert collected(token("1", 1), finish(0, tokens=3))[0] == (0,)


def token(request, count, sample=0):
    return Token(request, sample, "", tuple(range(count)))


def pace(total, *events, now, max_tokens=100):
    meter = Meter(total, max_tokens)
    for time, event in events:
        meter.add(event, time)
    return meter.pace(now)


def test_the_rate_begins_behind_the_first_tokens():
    assert pace(3, now=5) == ProgressRate(0, 3, None, None)
    assert pace(3, (5, token("1", 4)), now=6) == ProgressRate(0, 3, None, None)

    assert pace(1, (5, token("1", 4)), (7, token("1", 20)), now=7).speed == 10


def test_samples_are_as_long_as_allowed_or_as_those_that_ended():
    events = (0, token("1", 5)), (2, token("1", 20)), (2, token("2", 15))
    assert pace(3, *events, now=2).left == pytest.approx((3 * 100 - 40) / 17.5)

    events = (0, token("1", 10)), (1, finish(request="1", tokens=20)), (2, token("2", 30)), (2, token("3", 5))
    # 20 each: the second is over it already, the third lacks 15, the fourth 20.
    assert pace(4, *events, now=3) == ProgressRate(1, 4, 15.0, pytest.approx(35 / 15))


def test_samples_that_fail_or_share_a_prompt_are_counted_apart():
    failed = Error("1", 0, "EmptySupport", "", "")
    events = (0, token("1", 10)), (1, failed), (1, token("2", 10)), (2, finish(request="2", tokens=20))
    assert pace(3, *events, now=2) == ProgressRate(2, 3, 10.0, 2.0)

    events = (0, token("1", 1)), (1, token("1", 1, sample=1)), (2, finish(1, request="1", tokens=9))
    assert pace(2, *events, now=2).done == 1
