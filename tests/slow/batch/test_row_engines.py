"""The loop over rows, and steps ahead of the host."""

import json
from itertools import product

from gencli.models.other_runners import FakeRunner
from tests.batch.test_row_engines import ROWS, alone, texts


def test_every_row_is_what_it_is_alone():
    for max_batch, order in product([3, 8], [1, -1]):
        assert texts(ROWS[::order], max_batch=max_batch) == alone(), (order, max_batch)


def test_every_row_is_what_it_is_alone_where_the_memory_is_small():
    assert texts(ROWS, max_batch=8, runner=FakeRunner(memory_lanes=2)) == alone()


SAME = ("--draft", "none", "--keep-journal", "--no-timings", "--overwrite")

AHEAD_ROWS = [
    {},
    {"n": 3},
    {"logprobs": 2},
    {"stop": ["ab", "e"]},
    {"regex": "[a-c]{2,5}(e|d)+", "jump_forward": "off"},
    {"ban": ["ab", "ca"], "ban_rewind": True},
    {"max_tokens": 1},
    {"frequency_penalty": 1.5, "temperature": 0.7},
    {"best_of": 3},
    {"draft": "ngram", "draft_tokens": 2},
    {"choice": ["fa", "gb"], "jump_forward": "off"},  # of which no text is among the letters
]

TIMES = {"timings", "compile_seconds", "draft_seconds", "verify_seconds", "speedup", "check"}


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def check_same(bench, monkeypatch, *flags):
    bench.write([{"prompt": f"Row {n} {'abc' * n}", **AHEAD_ROWS[n % len(AHEAD_ROWS)]} for n in range(22)])
    found = []
    for is_ahead in (False, True):
        monkeypatch.setattr("gencli.runtime.wiring._run_ahead", lambda *_, is_on=is_ahead: is_on)
        done = bench.run(*SAME, *flags)
        journal = [timeless(json.loads(line)) for line in bench.journal.read_text().splitlines()]
        journal.sort(key=lambda line: line.get("row", -1))  # rows wait for their grammars
        found.append((done.code, bench.output.read_bytes(), journal))
    assert found[0] == found[1]
    assert len(found[0][2]) == len(AHEAD_ROWS) * 2 + 1


def test_results_and_journal_are_the_same(bench, monkeypatch):
    check_same(bench, monkeypatch)
