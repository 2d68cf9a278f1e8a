"""Stages with conditions give the text of a loop that changes the chain by hand at the borders."""

import json
from dataclasses import replace
from itertools import cycle

from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN, GrammarParams
from processors.chain import Chain
from processors.request_values import NO_CONDITION
from processors.standalone import sample
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Scripted, request, texts
from tests.engine.test_conditions import LETTERS, TABLE, conditional
from tests.engine.test_drafts import fits


def inside(start, end, text):
    """Whether a text behind the prompt abc ends between the tags; the tags do not overlap."""
    state, text = False, "abc" + text
    while tag := (end if state else start):
        _, found, text = text.partition(tag)
        if not found:
            return state
        state = not state
    return state


# The condition, and the same as a function of the output so far.
CONDITIONS = (
    ({"from": 4, "to": 17}, lambda text: 4 <= len(text) < 17),
    ({"after": "ab"}, lambda text: "ab" in text),
    ({"inside": ["c", "e"]}, lambda text: inside("c", "e", text)),
    ({"outside": ["c", "ed"], "from": 3}, lambda text: len(text) >= 3 and not inside("c", "ed", text)),
    ({"inside": ["", "d"]}, lambda text: "d" not in text),
)


# The entries beside the first part, which always acts; {} is where the condition goes.
CHAINS = (
    ("temperature=1.5", "temperature:temperature=0.3,when={}"),
    ("temperature=1.5 | top_p=0.9", "temperature:temperature=0,when={} | top_p=0.9"),
    ("temperature=0", "temperature:temperature=1.2,when={}"),
    ("temperature=0.8 | top_k=3", "temperature=0.8 | top_k:k=0,when={}"),
    ("frequency=1.5", "frequency:penalty=-1.0,when={}"),
    ("temperature=2.0", "temperature=2.0 | top_k:k=2,when={} | min_p:p=0.2,when={}"),
    ("", "bias:bias=[[97,3.0]],when={} | repetition:penalty=1.5,when={}"),
)


def by_hand(one, base, entries, holds, count):
    """The ids of a loop that draws each token with the chain that belongs there."""
    output, both = [], Chain.parse(base)
    plain = Chain.parse(entries.replace(",when={}", ""))
    there = dict(both.stages) | dict(plain.stages)
    chains = [
        Chain.ordered([*Chain.parse(LETTERS).stages, *stages]) for stages in (both.stages, there.items())
    ]
    while len(output) < count:
        prompt, chain = list(one.prompt_ids), chains[holds(bytes(output).decode())]
        last = [*prompt, *output][-1]
        output.append(int(sample(TABLE[last], chain, seed=one.seed, prompt=prompt, output=output)))
    return bytes(output).decode()


def check_by_hand(chain, condition):
    (base, entries), (when, holds) = chain, condition
    made = conditional(base, entries, when)
    some = [request("abc", key=key, seed=7, chain=made, max_tokens=40) for key in range(3)]
    expected = {(one.id, 0): by_hand(one, base, entries, holds, 40) for one in some}
    assert texts(some) == expected, (chain, when)
    one = some[0]
    answers = {one.prompt_ids: tuple(expected[one.id, 0].encode())}
    for most in (1, 3, 8):
        drafted = texts([one], drafter=Scripted(answers, most))
        assert drafted == {(one.id, 0): expected[one.id, 0]}, (chain, when, most)


def test_the_text_is_that_of_a_loop_by_hand_with_drafts_and_in_a_batch():
    for chain, condition in zip(CHAINS, cycle(CONDITIONS), strict=False):
        check_by_hand(chain, condition)


def check_stages(number):
    """Example `number` of each stage."""
    for spec in BUILTIN:
        examples = EXAMPLES[spec.params]
        if spec.name not in NO_CONDITION and len(examples) > number and fits(examples[number]):
            check_place(spec.name, examples[number])


def check_place(name, params):
    def told(*requests, **options):
        return texts(requests, runner=FakeRunner(vocab_size=300), **options)

    there = params.replace(when={"from": 8, "to": 30})
    one = replace(request("the cat sat", max_tokens=40, jump="off"), chain=Chain(((name, there),)))
    text, plain = told(one)[one.id, 0], told(replace(one, chain=Chain()))[one.id, 0]
    assert text.encode(errors="replace")[:6] == plain.encode(errors="replace")[:6], (name, params)
    drafter = Scripted({one.prompt_ids: tuple(text.encode())}, 8)
    assert told(one, drafter=drafter) == {(one.id, 0): text}, (name, params)
    beside = replace(one, id="beside", chain=Chain(((name, params),)))
    assert told(beside, one)[one.id, 0] == text, (name, params)


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]{6}$"},
        "items": {"type": "array", "minItems": 2, "maxItems": 3, "items": {
            "type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{4,9}$"}},
            "required": ["name"], "additionalProperties": False}},
    },
    "required": ["id", "items"],
    "additionalProperties": False,
}  # fmt: skip


def document(key, chain, after="", **rest):
    one = request("x", key=key, chain=chain, max_tokens=200, **rest)
    grammar = ("grammar", GrammarParams(json.dumps(SCHEMA), kind="json_schema", after=after))
    return replace(one, chain=Chain((grammar, *one.chain.stages)))


FIELDS = (
    'bias:bias=[[122,60.0]],when={"path": "/items/*/name"} | temperature=1.5 '
    '| temperature:temperature=0,when={"path": "/id"}'
)


def test_stages_of_a_field_act_in_that_field_only():
    found = [json.loads(texts([document(key, FIELDS)])[str(key), 0]) for key in range(6)]
    assert {item["name"] for one in found for item in one["items"]} == {"z" * 9}
    assert len({one["id"] for one in found}) == 1
    free = [json.loads(texts([document(key, "temperature=1.5")])[str(key), 0]) for key in range(6)]
    assert len({one["id"] for one in free}) == 6


def test_a_document_behind_a_marker_drafts_and_jumps_change_no_field():
    marker = 'bias:bias=[[113,60.0]],when={"from": 3, "to": 4} | '
    fields = marker + FIELDS.replace('"path"', '"after": "q", "path"')
    many = [document(key, fields, after="q", jump=jump) for key, jump in ((1, "off"), (2, "auto"))]
    for one in many:
        whole = texts([one])[one.id, 0]
        assert {item["name"] for item in json.loads(whole.partition("q")[2])["items"]} == {"z" * 9}
        drafter = Scripted({one.prompt_ids: tuple(whole.encode())}, 8)
        assert texts([one], drafter=drafter) == {(one.id, 0): whole}
    assert texts([replace(one, jump="off") for one in many]) == texts(many)
