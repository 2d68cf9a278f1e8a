"""Conditions of stages, and watermarks: values, round trips, refusals by name."""

import json
from contextlib import suppress

import pytest

from gencli.batch.journal import differences
from gencli.config.job import SamplingParams, make_job, notices, params_layer, request_layer
from gencli.config.layers import gather, preset_text
from gencli.config.settings import SettingsLayer, resolve
from gencli.errors import ConfigError, UsageError
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


KEY = "60902184713"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "mark.key"
    path.write_text(KEY)
    return str(path)


def job(**values):
    return make_job(gather({"model": "fake", **values}, {}))


def stages(found):
    return [name for name, _ in found.assembly.chain]


def test_kgw_follows_the_stages_that_adjust_and_the_others_are_last(key):
    values = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "watermark_key": key}
    assert stages(job(watermark="kgw", **values)) == ["presence", "kgw", "temperature", "top_p"]
    assert stages(job(watermark="synthid", temperature_last=True, **values))[-2:] == [
        "temperature",
        "synthid",
    ]
    order = ("temperature", "top_p", "penalties")
    assert stages(job(watermark="gumbel", chain=order, **values))[-1] == "gumbel_mark"
    assert stages(job(watermark="kgw", chain=order, **values))[-2:] == ["presence", "kgw"]


def test_what_does_not_go_with_a_watermark_is_refused_without_the_key(key):
    for values, message in [
        ({"watermark": "kgw", "watermark_key": None}, "needs a key"),
        ({}, "there is no watermark"),
        ({"watermark": "synthid", "temperature": 0}, "a temperature of 0 .* none is drawn"),
        ({"watermark": "gumbel", "sampler": "greedy"}, "`sampler` = greedy none is drawn"),
        ({"watermark": "gumbel", "beams": 2}, "`beams` draws none"),
        ({"watermark": "synthid", "contrastive_alpha": 0.6}, "`contrastive_alpha` draws none"),
        ({"watermark": "gumbel", "n": 2}, "the texts would begin alike"),
        ({"watermark": "gumbel", "best_of": 2}, "the texts would begin alike"),
        ({"watermark": "kgw", "chain": ("kgw", "temperature")}, "the place of a watermark is fixed"),
        ({"watermark": "kgw", "stage": [f"kgw:key={KEY}"]}, "the stage kgw is set by `watermark`"),
        ({"stage": [f"gumbel_mark:{KEY}"], "watermark_key": None}, "is set by `watermark`"),
    ]:
        given = {name: value for name, value in {"watermark_key": key, **values}.items() if value is not None}
        with pytest.raises(UsageError, match=message) as error:
            job(**given)
        assert KEY not in f"{error.value.message}{error.value.hint}", values


def test_where_a_mark_acts_and_what_turns_it_off(key):
    for values in ({"temperature": 0.0}, {"beams": 3}, {"sampler": "greedy"}):
        assert "kgw" in [name for name, _ in job(watermark="kgw", watermark_key=key, **values).chain]

    weak = SettingsLayer.of("preset", {"watermark": "kgw", "watermark_key": key})
    assert stages(make_job(resolve(weak, ("flag", {"watermark": "none"})))) == []
    assert stages(make_job(resolve(weak))) == ["kgw"]


def test_two_keys_may_draw_several_texts_and_one_key_is_said_to_decide(tmp_path, key):
    dual = tmp_path / "dual.yaml"
    dual.write_text(f"key: {KEY}\nalpha: 0.2\n")
    assert job(watermark="gumbel", watermark_key=str(dual), n=3).n == 3
    said = list(notices(job(watermark="gumbel", watermark_key=key), ("x",)))
    assert any("texts of one prompt begin alike" in text for text in said)
    assert list(notices(job(watermark="gumbel", watermark_key=str(dual)), ("x",))) == []


def test_the_key_of_a_preset_or_a_journal_is_told_from_others_and_not_shown(tmp_path, key):
    (tmp_path / "other.key").write_text(f"{KEY}1")
    ours, other = (
        job(watermark="kgw", watermark_key=path).assembly.chain.to_list()
        for path in (key, str(tmp_path / "other.key"))
    )
    assert ours != other
    assert KEY not in f"{ours}{other}"

    preset = tmp_path / "marked.yaml"
    preset.write_text("watermark: kgw\nwatermark_key: mark.key\n")
    settings = gather({"model": "fake", "preset": [str(preset)]}, {})
    assert settings["watermark_key"] == key, "relative to the preset"
    text = preset_text(settings, make_job(settings), is_complete=True)
    assert KEY not in text
    assert "mark.key" in text
    assert "\n  kgw:" not in text
    for stage in (f"stages:\n  kgw: {{key: {KEY}}}\n", f"chain:\n- gumbel_mark: {KEY}\n"):
        preset.write_text(stage)
        with pytest.raises(ConfigError, match="is set by `watermark`") as error:
            gather({"model": "fake", "preset": [str(preset)]}, {})
        assert KEY not in str(error.value)
