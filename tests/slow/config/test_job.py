"""Jobs of many rows, and numbers at the ends of their ranges."""

import json
import math
import re

import pytest

from gencli.config.chain_assembly import MARKS
from gencli.config.job import REQUEST_KEYS, Jobs, params_layer
from gencli.config.layers import gather
from gencli.config.run_options import OPTIONS
from processors.catalog import BUILTIN
from processors.params import describe
from tests.config.test_run_options import is_number, kinds
from tests.helpers.option_walk import OptionWalk, command_line, run_line
from tests.helpers.pairs import FEATURES


def make_jobs():
    return Jobs(gather({"model": "fake"}, {}), lambda values, registry: params_layer(values, registry, "row"))


def test_equal_options_share_a_job_and_large_ones_do_not_add_up():
    jobs = make_jobs()
    one, same = (jobs.job({"top_k": 5, "seed": seed}) for seed in (1, 2))
    assert one.assembly is same.assembly
    assert (one.seed, same.seed) == (1, 2)

    # A client can send another text of megabytes with each request.
    jobs = make_jobs()
    for number in range(40):
        jobs.job({"stop": [str(number) + "x" * (1 << 20)]})
    assert sum(map(len, jobs._jobs._values)) <= 16 << 20


NUMBERS = {entry.key: entry for entry in OPTIONS if is_number(entry)}

# Of these the largest value is a run of a million samples; tests/engine/test_engine.py has that.
LONG = {"n", "best_of", "retries"}
NO_NUMBERS = ("", "x", "nan", "inf", "-inf", "1e999", "9" * 5000, "0x10", "1_000", "٣")


def inside(entry):
    """The bounds of an option, and the numbers next to them that it takes."""
    bounds = entry.bounds
    ends = [end for end in (bounds.ge, bounds.gt, bounds.le, bounds.lt) if end is not None]
    near = [*ends, *(end + 1 for end in ends), *(end - 1 for end in ends), 1e-300, 1e38, -1e38, 1e300, -1e300]
    kept = [number for number in near if bounds.allow(number) and math.isfinite(number)]
    if entry.type is float:
        return sorted({float(number) for number in kept})
    kept = sorted({int(number) for number in kept if float(number).is_integer() and abs(number) < 1e30})
    return kept[:1] if entry.key in LONG else kept


def beyond(entry):
    """Numbers that it does not take."""
    tried = [-1, -2, 0, 2**31, 2**32, 2**63, 2**64, 10**20, 10**400]
    return [number for number in tried if not entry.bounds.allow(number)]


def line(entry, text):
    setup = FEATURES[entry.key].setups[0] if entry.key in FEATURES else {}
    base = {"--model": ("fake",), "--seed": ("1",), "--max-tokens": ("3",), "PROMPT": ("hi",)}
    flag = entry.names[0]
    return command_line({**base, **setup, flag: (text,)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return OptionWalk(tmp_path_factory.mktemp("extremes")).folder


def assert_no_fault(keys):
    for entry in (NUMBERS[key] for key in keys):
        texts = [*map(repr, inside(entry)), *NO_NUMBERS]
        texts += [str(number) if abs(number) < 10**30 else "1" + "0" * 400 for number in beyond(entry)]
        for text in texts:
            code, out, err = run_line(line(entry, text))
            assert code in (0, 2, 3, 6), (entry.key, text[:40], err)
            assert not re.search(r"fault of gencli|Traceback|Unexpected", out + err), (text[:40], err)
            if text in NO_NUMBERS[:2]:
                assert code == 2, (entry.key, text)
        for number in beyond(entry)[:4]:
            code, _, err = run_line(line(entry, str(number)))
            assert (code, entry.names[0] in err) == (2, True), (entry.key, number)


def test_no_number_of_the_usual_options_ends_in_a_fault(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert_no_fault(("temperature", "top_k", "top_p", "seed", "max_tokens", "beams"))


WRONG = (-1, -2, 2**31, 2**63, 2**64, 10**20, 1e300, -1e300, 1e999, 0.5, True, "x", None, [], [[]], {"a": 1})

FIELDS = [
    (spec.name, name)
    for spec in BUILTIN
    if spec.name not in {"tail", *MARKS}
    for name, about in describe(spec.params).items()
    if kinds(about["type"]) & {int, float}
]


def test_no_number_of_a_row_ends_more_than_its_row(gencli, tmp_path):
    """Beside rows that are sound, which all have results."""
    keys = sorted(key for key in NUMBERS if key in REQUEST_KEYS)
    rows = [{"prompt": "hi", key: value} for key in keys for value in WRONG if value is not None]
    rows += [
        {"prompt": "hi", "stages": {stage: {field: value}}}
        for stage, field in FIELDS
        for value in WRONG
        if value is not None
    ]
    mixed = [row for pair in zip(rows, [{"prompt": "hi"}] * len(rows), strict=True) for row in pair]
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps(row).replace("Infinity", "1e999") for row in mixed]
    given.write_text("\n".join([*lines, '{"prompt": "hi", "top_k": ' + "9" * 5000 + "}"]) + "\n")
    done = gencli(
        "batch", given, "-m", "fake", "--seed", 1, "--max-tokens", 2, "-o", out, "-q", "--no-timings"
    )
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert done.code == 7, done.err
    assert len(results) == len(mixed) + 1
    assert all(not result["error"] for result in results[1:-1:2])
    faults = [result["error"]["message"] for result in results if result["error"]]
    assert faults[-1]
    assert [text for text in faults if re.search("fault of gencli|Traceback|Unexpected", text)] == []
