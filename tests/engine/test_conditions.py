"""Stages with conditions give the text of a loop that changes the chain by hand at the borders."""

import json
from dataclasses import replace
from itertools import cycle, product

import pytest

from gencli.core.request import Beams, Stops
from gencli.models.fake import FakeRunner
from processors.catalog import BUILTIN, GrammarParams
from processors.chain import Chain
from processors.choose import Chooser
from processors.conditions.when import NO_CONDITION
from processors.errors import ChainError
from processors.policy import Verification
from processors.standalone import sample
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Scripted, engine, request, texts
from tests.engine.test_drafts import fits

TABLE = FakeRunner().table
LETTERS = "allowed=[97,98,99,100,101,102,103]"  # a to g, so that tags come often


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


def conditional(base, entries, when):
    """The chain of both: an entry that changes a stage of the base stands behind it."""
    stages = dict.fromkeys(Chain.parse(base).stages)
    stages |= dict.fromkeys(Chain.parse(entries.replace("{}", json.dumps(when))).stages)
    return Chain.ordered([*Chain.parse(LETTERS).stages, *stages])


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


def test_the_text_of_each_chain_and_condition_is_that_of_a_loop_by_hand():
    for chain, condition in product(CHAINS, CONDITIONS):
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


def test_every_stage_acts_in_its_place_only_and_takes_drafts_there():
    check_stages(0)


def test_every_stage_with_other_values_acts_in_its_place_only():
    check_stages(1)


def test_greedy_places_verify_drafts_exactly():
    for policy in ("match", "rejection"):
        made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"from": 0, "to": 40})
        one = request("abc", chain=made, max_tokens=30)
        greedy = texts([replace(one, chain=Chain.parse(LETTERS + " | temperature=0"))])
        drafting = replace(one.drafting, verification=Verification(policy))
        drafter = Scripted({one.prompt_ids: tuple(greedy[one.id, 0].encode())})
        assert texts([replace(one, drafting=drafting)], drafter=drafter) == greedy, policy
        assert drafter.proposed > 10, policy


def test_samples_beams_and_slots_follow_their_own_texts():
    made = conditional("temperature=1.5", "temperature:temperature=0.1,when={}", {"after": "a"})
    one = request("abc", chain=made, max_tokens=30)
    many = texts([replace(one, n=4)])
    assert len(set(many.values())) == 4
    assert texts([one])[one.id, 0] == many[one.id, 0]
    some = [request("abc", key=key, chain=made, max_tokens=20) for key in range(6)]
    some[2] = request("abc", key=2, chain="temperature=1.5", max_tokens=20)
    together = texts(some, max_batch=2)  # each slot is used again
    assert together == {key: text for one in some for key, text in texts([one]).items()}
    banned = Chain.parse(LETTERS + ' | suppress:ids=[98],when={"after": "a"}')
    found = texts([request("abc", chain=banned, max_tokens=20, n=4, beams=Beams(4))])
    parts = [text.partition("a") for text in found.values()]
    assert len(parts) == 4
    assert any(tag for _, tag, _ in parts)
    assert not any("b" in rest for _, _, rest in parts)


def test_a_stop_string_beside_a_condition_ends_where_the_text_has_it():
    made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"after": "a"})
    one = request("abc", chain=made, max_tokens=40)
    whole = texts([one])[one.id, 0]
    cut = texts([replace(one, stops=Stops(strings=(whole[18:21],)))])[one.id, 0]
    assert whole.startswith(cut)
    assert len(cut) <= 18


def test_rows_without_conditions_stay_fused_beside_others(monkeypatch):
    fused = []
    split = Chooser._split

    def seen(self, program, rows):
        head, groups = split(self, program, rows)
        fused.append([group.tail is not None for group in groups])
        return head, groups

    monkeypatch.setattr(Chooser, "_split", seen)
    made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"from": 3, "to": 6})
    plain = request("abc", key="plain", chain="temperature=0.8 | top_p=0.9", max_tokens=10)
    together = texts([plain, request("abc", key="mixed", chain=made, max_tokens=10)])
    assert [True, False] in fused
    assert together["plain", 0] == texts([plain])["plain", 0]


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


def test_a_condition_that_a_stage_cannot_have_is_refused_at_once():
    with pytest.raises(ChainError, match="min_tokens takes no condition .when.: it is a promise"):
        engine().submit(request("a", chain='min_tokens:count=3,when={"from":2}'))
    with pytest.raises(ChainError, match="there is no tokenizer"):
        sample(TABLE[0], 'top_k:k=1,when={"after":"a"}')
    positions = sample(TABLE[5], 'top_k:k=1,when={"from":2}', output=[1, 2])  # which need no tokenizer
    assert int(positions) == int(TABLE[5].argmax())
