"""The loop over rows."""

from functools import cache

from gencli.batch.batch_records import Failure, Outcome, Record, Row
from gencli.batch.batch_rows import row_jobs
from gencli.batch.batch_setup import row_key, row_request
from gencli.batch.row_engines import Loop
from gencli.config.settings import FLAG, resolve
from gencli.core.events import Error
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.runtime.compiled_grammars import Grammars
from gencli.text.tokenizer import ByteTokenizer
from processors.base import Env
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.rng import derive

TOKENIZER = ByteTokenizer()
JOBS = row_jobs(resolve((FLAG, {"seed": 7, "max_tokens": 10})))
OWN = [{}, {"temperature": 0.4}, {"seed": 11}, {"max_tokens": 3, "stop": ["a"]}, {"n": 3}, {"temperature": 0}]


def row(index, name=None, **options):
    return Row(Record(index, f"in:{index}"), name or str(index), f"Prompt {index}", options=options)


ROWS = [row(index, **OWN[index % len(OWN)]) for index in range(40)]


def judge(entry):
    row, ends = entry.row, entry.line.ended
    said = [end.message if isinstance(end, Error) else end.text for end in ends]
    return Outcome(row.record.index, row.id, {"texts": said}, any(isinstance(end, Error) for end in ends))


def loop(max_batch=4, *, runner=None, ahead=None, engine=None):
    engine = engine or Engine(runner or FakeRunner(), TOKENIZER, max_batch=max_batch)
    grammars = Grammars(GrammarCompiler(Env(258, TOKENIZER, (257,))))
    return Loop(engine, TOKENIZER, JOBS, grammars, judge, ahead=ahead or 4 * max_batch)


def texts(rows, **options):
    return {one.index: one.result["texts"] for one in loop(**options).run(rows)}


@cache
def alone():
    """The texts of each row that runs by itself."""
    return {one.record.index: texts([one], max_batch=3)[one.record.index] for one in ROWS}


def test_rows_are_read_only_as_far_as_they_are_needed():
    read, most = [], []

    def rows():
        for one in ROWS:
            read.append(one)
            yield one

    done = 0
    for _ in loop(2, ahead=6).run(rows()):
        done += 1
        most.append(len(read) - done)
    assert done == len(ROWS)
    assert max(most) <= 6


def test_the_seed_is_the_run_s_mixed_with_the_id():
    requests = [row_request(one, JOBS.base, TOKENIZER) for one in (row(3), row(5, "3"), row(3, "x"))]
    assert [one.seed for one in requests] == [derive(7, 3), derive(7, 3), derive(7, "x")]


def test_a_row_with_a_seed_is_its_prompt_alone_with_that_seed():
    one = row(9, seed=11)
    assert row_request(one, JOBS.job(one.options), TOKENIZER).seed == derive(11, 0)


def test_only_what_is_written_like_an_index_is_a_number():
    for name in ["007", "-1", "1.0", "²", "", "9" * 19, "9" * 400]:
        assert row_key(name) == name, name


def test_a_row_that_cannot_run_fails_alone():
    bad = [
        Row(Record(40, "in:41"), "40", failure=Failure("InputError", "This is not JSON.")),
        Row(Record(41, "in:42"), "41", "x" * 2000),
        row(42, stages={"allowed": [300]}),
    ]
    mixed = [bad[0], *ROWS[:20], bad[1], *ROWS[20:], bad[2]]
    found = list(loop().run(mixed))
    assert {one.index: one.result["texts"] for one in found if not one.is_error} == alone()
    assert sorted(one.index for one in found if one.is_error) == [40, 41, 42]


def test_after_a_stop_rows_are_whole_or_absent():
    for drain in [0.0, 1000.0]:
        running = loop(3)
        found = {}
        for one in running.run(ROWS):
            found[one.index] = one.result["texts"]
            if len(found) == 5:
                running.stop(drain)
        assert running.is_stopped, drain
        assert len(found) < len(ROWS), drain
        assert found == {index: alone()[index] for index in found}, drain
        assert (len(found) > 5) == (drain > 0), drain


def test_a_drain_ends_when_its_time_is_over():
    running = loop(3)
    found = []
    for one in running.run(ROWS):
        found.append(one)
        running.stop(1e-9)
    assert len(found) < 6


def test_a_stop_drops_the_samples_of_a_row_together():
    for drain in (0.0, 1e-9):
        engine = Engine(FakeRunner(), TOKENIZER, max_batch=4)
        running = loop(engine=engine)
        assert not [*running.run([row(0, n=300_000)], lambda _, on=running, drain=drain: on.stop(drain))]
        assert engine.has_work  # none of its samples was ended by itself


def test_every_token_is_heard():
    heard = []
    assert len(list(loop().run([row(0), row(1)], heard.append))) == 2
    assert sum(heard) == 20
