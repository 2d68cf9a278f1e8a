"""Conditions in presets, flags and Python: values by entry, round trips, refusals by name."""

import json
from contextlib import suppress

import pytest

from gencli.batch.journal import differences
from gencli.config.job import SamplingParams, make_job, params_layer, request_layer
from gencli.config.settings import resolve
from gencli.errors import UsageError
from processors.chain import Chain
from processors.errors import ChainError
from processors.registry import builtin_registry
from tests.cli.conftest import FAKE

ITEMS = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
SCHEMA = ("--json-schema", json.dumps({"type": "object", "properties": {"items": ITEMS}}))
THINKING = """\
stages:
  temperature:
    - {temperature: 0.3, when: {inside: thinking}}
    - {temperature: 1.0}
  top_k: {k: 5, when: {after: "</think>", from: 3}}
"""
FIELDS = """\
json: true
temperature: 0.7
fields:
  /items/*/name: {temperature: 1.2, top_p: {p: 0.9}}
  /id: greedy
"""


@pytest.fixture
def made(here, gencli):
    """The chain, as a text, that a run with these flags has."""

    def show(*flags):
        done = gencli("run", *flags, *FAKE, "--show-chain", "--format", "json")
        assert done.code == 0, done.err
        return [row["value"] for row in done.json if row["stage"] in ("temperature", "top_p", "top_k")]

    return show


def test_an_exported_run_is_the_same_run(here, gencli):
    for text in [THINKING, FIELDS]:
        here("a.yaml", text)
        first = gencli("config", "export", "--preset", "a.yaml", *FAKE)
        assert first.code == 0, first.err
        here("b.yaml", first.out)
        again = gencli("config", "export", "--preset", "b.yaml")
        assert again.out == first.out, text
        assert gencli("config", "diff", "a.yaml", "a.yaml").out.endswith("give the same run.\n"), text
        shown = ("--show-chain", "--format", "json", *FAKE)
        chains = [gencli("run", "--preset", name, *shown).json for name in ("a.yaml", "b.yaml")]
        values = [[row["value"] for row in rows] for rows in chains]
        assert values[0] == values[1], text


def test_flags_fields_and_markers_give_conditions(here, made):
    here("a.yaml", THINKING)
    where = 'when {"inside": "thinking"}'
    assert made("--preset", "a.yaml")[:2] == ["temperature=1.0", f"temperature=0.3 {where}"]
    assert made("--preset", "a.yaml", "-t", "2")[:2] == ["temperature=2.0", f"temperature=0.3 {where}"]
    changed = made("--preset", "a.yaml", "--thinking-temperature", "0.6")
    assert changed[:2] == ["temperature=1.0", f"temperature=0.6 {where}"]

    here("a.yaml", FIELDS)
    assert made("--preset", "a.yaml") == [
        "temperature=0.7",
        'temperature=1.2 when {"path": "/items/*/name"}',
        'temperature=0.0 when {"path": "/id"}',
        'p=0.9 when {"path": "/items/*/name"}',
    ]

    flags = ("--json", "--constrain-after", "DONE", "--thinking-temperature", "0.6")
    path = ("--stage", 'top_k:k=3,when={"path":"/a"}')
    assert made(*flags, *path) == [
        'temperature=0.6 when {"inside": ["", "DONE"]}',
        'k=3 when {"after": "DONE", "path": "/a"}',
    ]


def stage(text):
    return ("--stage", text)


def test_a_condition_that_makes_no_sense_is_refused_before_a_model_loads(run):
    for flags, message in [
        (stage('top_k:k=3,when={"path":"/a"}'), "a JSON document, but the output has no structure"),
        ((*stage('top_k:k=3,when={"path":"/a"}'), "--regex", "a+"), "but --regex makes no document"),
        ((*stage('top_k:k=3,when={"path":"/items/*/nme"}'), *SCHEMA), "At /items/* it has name."),
        (stage('min_tokens:count=3,when={"from":2}'), "min_tokens takes no condition (when): it is"),
        (stage('top_k:k=3,when={"from":99}'), "the condition begins at 99 output tokens, but --max-tokens"),
        (stage('top_k:when={"from":9}'), "is given a condition, but no value"),
        (stage('top_k:k=3,when={"form":9}'), "no part 'form'. Did you mean 'from'"),
        ((*stage('top_k:k=3,when={"from":9}'), *stage('top_k:k=4,when={"from":9}')), "both set k of"),
        (("--sampler", "greedy", "--thinking-temperature", "0.5"), "would have no effect"),
    ]:
        done = run(*flags, "--max-tokens", "50", "hi")
        assert done.code == 2, flags
        assert message in done.err.replace("\n", " "), flags


def test_a_fault_of_a_preset_has_its_place(here, gencli):
    for text, place, message in [
        ("stages:\n  top_k: {k: 3, when: {to: 0}}\n", "2:23", "when never holds"),
        ("stages:\n  top_k: {when: {to: 3}}\n", "2:10", "given a condition, but no value"),
        ("fields:\n  items: greedy\n", "2:3", "no JSON pointer"),
        ("fields:\n  /a: cold\n", "2:7", "has to be greedy, or a mapping of stages"),
        ("fields:\n  /a: {top_q: 3}\n", "2:8", "no stage 'top_q'"),
        ("fields:\n  /a: {top_k: {k: 3, when: {to: 3}}}\n", "2:28", "its condition is the path above it"),
        ("fields: 3\n", "1:9", "has to be a mapping of JSON pointers"),
    ]:
        here("a.yaml", text)
        done = gencli("config", "lint", "a.yaml")
        assert done.code != 0, text
        assert f"a.yaml:{place}" in done.out + done.err, text
        assert message in done.out + done.err, text


TEXT = 'temperature=0.9 | temperature:temperature=0.3,when={"inside": "thinking"} | top_p=0.9'


def test_python_takes_chains_stages_and_fields():
    registry = builtin_registry()

    def chain(**values):
        return make_job(resolve(params_layer(SamplingParams(**values), registry))).assembly.chain

    assert str(chain(chain=TEXT)) == TEXT
    entries = [0.9, {"temperature": 0.3, "when": {"inside": "thinking"}}]
    with pytest.raises(UsageError, match="temperature"):
        chain(stages={"temperature": entries})  # every item of a list of entries is a mapping
    several = {"temperature": [{"temperature": 0.9}, entries[1]], "top_p": 0.9}
    assert chain(stages=several) == Chain.parse(TEXT)
    assert str(chain(json=True, fields={"/id": "greedy"})).endswith(
        'temperature:temperature=0.0,when={"path": "/id"}'
    )
    with pytest.raises(ChainError, match="two places"):
        SamplingParams(chain='top_k=3 | top_p=0.9 | top_k:k=4,when={"from": 3}')

    one = Chain.parse(TEXT).to_list()
    other = Chain.parse(TEXT.replace('{"inside": "thinking"}', '{"from": 3}')).to_list()
    assert json.loads(json.dumps(one)) == one
    assert list(differences({"chain": one}, {"chain": other})) == ["chain"]


ODD = (-1, 10**400, 1e300, float("inf"), True, "x", None, [], [[]], {"a": 1}, {"path": "/\ud800"},
       {"to": None}, {"inside": ["", ""]}, {"after": None}, {"path": "/a", "after": "x" * 5000})  # fmt: skip


def test_what_a_request_may_send_ends_in_an_error_of_its_own_or_is_a_condition():
    for odd in ODD:
        for values in (
            {"stages": {"top_k": {"k": 3, "when": odd}}},
            {"chain": [{"top_k": [{"k": 3, "when": odd}, {"k": 4}]}]},
            {"fields": {"/a": odd}},
            {"fields": {"/a": {"top_k": odd}}},
            {"fields": odd},
        ):
            with suppress(UsageError):
                request_layer(values, builtin_registry(), "x")
