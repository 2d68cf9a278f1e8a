"""Grammars beside other stages, conditions of stages, and documents at the limit of tokens."""

import json
from dataclasses import replace
from itertools import cycle

import pytest

from gencli.core.events import Error
from gencli.core.request import Limits, Stops
from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.request_values import NO_CONDITION
from processors.stages.grammar_stage import GrammarParams
from processors.stages.penalties import FrequencyParams
from processors.standalone import sample
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Scripted, generate, request, texts
from tests.engine.test_drafts import fits, off, record, tokens_of
from tests.engine.test_grammar import LETTERS, TABLE, WORDS, conditional
from tests.engine.test_grammar import constrained as grammar_request
from tests.engine.test_grammar import end_of as grammar_end


def test_tokens_without_a_choice_are_not_penalised():
    heavy = FrequencyParams(50.0)
    # Of each word only the first byte is a choice, and b begins two of them.
    texts = ("bbbb1bbbb2", "bbbb1cbbb2")
    for seed in range(6):
        one = grammar_request(*texts, seed=seed)
        penalised = replace(one, chain=Chain((*one.chain.stages, ("frequency", heavy))))
        assert grammar_end(penalised).text == grammar_end(one).text
        answers = {one.prompt_ids: tuple(texts[0].encode())}
        assert grammar_end(penalised, drafter=Scripted(answers)).text == grammar_end(one).text


def test_the_grammar_begins_behind_the_marker():
    one = grammar_request("yes", "no", after="e", max_tokens=400)
    for drafter in (None, Scripted({one.prompt_ids: tuple(grammar_end(one).text.encode())})):
        end = grammar_end(one, drafter=drafter)
        thinking, _, document = end.text.partition("e")
        assert (document in ("yes", "no"), end.reason) == (True, "grammar")
        assert thinking


def test_the_text_is_one_of_the_choices_and_ends_by_itself_or_goes_on():
    for seed in range(8):
        end = grammar_end(grammar_request(seed=seed))
        assert (end.text in WORDS, end.document) == (True, "over"), seed
        assert end.reason == ("eos" if end.text == "green" else "grammar"), seed
    ends = [grammar_end(grammar_request("green", "greenish", seed=seed)) for seed in range(12)]
    assert {(end.text, end.reason) for end in ends} == {("green", "eos"), ("greenish", "grammar")}
    end = grammar_end(grammar_request("blue and white", max_tokens=5))
    assert (end.text, end.reason, end.document) == ("blue ", "length", "open")


def test_rows_with_and_without_a_grammar_and_samples_have_states_of_their_own():
    rows = [grammar_request(key=f"g{i}", seed=i) for i in range(5)]
    rows += [request("free", key=f"f{i}", seed=i) for i in range(5)]
    rows += [grammar_request("yes", "no", key=f"y{i}", seed=i) for i in range(5)]
    alone = {(row.id, 0): grammar_end(row).text for row in rows}
    assert {key: end.text for key, end in generate(rows, max_batch=6).items()} == alone
    texts = {end.text for end in generate([replace(grammar_request(), n=6)]).values()}
    assert len(texts) > 1
    assert texts <= set(WORDS)


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
    some = [request("abc", key=key, seed=7, chain=made, max_tokens=40) for key in range(2)]
    expected = {(one.id, 0): by_hand(one, base, entries, holds, 40) for one in some}
    assert texts(some) == expected, (chain, when)
    one = some[0]
    answers = {one.prompt_ids: tuple(expected[one.id, 0].encode())}
    for most in (1, 8):
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


MARKED_SCHEMA = {
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
    grammar = ("grammar", GrammarParams(json.dumps(MARKED_SCHEMA), kind="json_schema", after=after))
    return replace(one, chain=Chain((grammar, *one.chain.stages)))


FIELDS = (
    'bias:bias=[[122,60.0]],when={"path": "/items/*/name"} | temperature=1.5 '
    '| temperature:temperature=0,when={"path": "/id"}'
)


def test_stages_of_a_field_act_in_that_field_only():
    found = [json.loads(texts([document(key, FIELDS)])[str(key), 0]) for key in range(3)]
    assert {item["name"] for one in found for item in one["items"]} == {"z" * 9}
    assert len({one["id"] for one in found}) == 1
    free = [json.loads(texts([document(key, "temperature=1.5")])[str(key), 0]) for key in range(3)]
    assert len({one["id"] for one in free}) == 3


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


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-f]{2,5}$"},
        "size": {"enum": ["small", "smaller"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
PENALTIES = ("frequency=50", "presence=50", "repetition=9")
CUTS = ("top_p=0.02", "min_p=0.98", "top_k=1")
BACKENDS = pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])


def constrained(backend, grammar=SCHEMA, *, key="k", seed=0, chain="", max_tokens=160, **rest):
    """A request under a schema, or a regular expression where the grammar is a text."""
    one = request("?", key=key, seed=seed, chain=chain, max_tokens=max_tokens, **rest)
    params = (
        GrammarParams(grammar, kind="regex", backend=backend)
        if isinstance(grammar, str)
        else GrammarParams(json.dumps(grammar), backend=backend, whitespace=1)
    )
    return replace(one, chain=Chain((("grammar", params), *one.chain.stages)))


def end_of(one, **options):
    return generate([one], **options)[one.id, 0]


def outcome(end):
    return end.text, end.reason, end.document, end.completion_tokens


def is_whole(end):
    value = json.loads(end.text)
    return list(value) == ["name", "size", "tags"] and value["size"] in SCHEMA["properties"]["size"]["enum"]


def rows_of(backend, count=4, **rest):
    return [constrained(backend, key=f"r{seed}", seed=seed, **rest) for seed in range(count)]


@BACKENDS
def test_penalties_break_no_document_and_count_what_was_chosen(backend):
    for penalty in PENALTIES:
        seen = set()
        for seed in range(4):  # only the sixth byte is a choice, after five b that nobody chose
            plain = constrained(backend, "bbbbb(b|c)bbb2", seed=seed)
            penalised = constrained(backend, "bbbbb(b|c)bbb2", seed=seed, chain=penalty)
            assert outcome(end_of(penalised)) == outcome(end_of(plain)), penalty
            seen.add(end_of(plain).text)
        assert len(seen) == 2, penalty
        assert all(map(is_whole, generate(rows_of(backend, chain=penalty)).values())), penalty
    plain, penalised = (
        end_of(constrained(backend, "[bcd]{30}", chain=f"temperature=0{penalty}")).text
        for penalty in ("", " | frequency=50")
    )
    assert sorted(map(penalised.count, "bcd")) == [10, 10, 10] != sorted(map(plain.count, "bcd"))


@BACKENDS
def test_stops_count_only_behind_a_complete_text(backend):
    rows = rows_of(backend, stops=Stops(strings=('"', ",", "name", "}", "t")))
    found = generate(rows)
    plain = generate([replace(one, stops=Stops()) for one in rows])
    assert {key: end.text for key, end in found.items()} == {key: end.text for key, end in plain.items()}
    assert all(map(is_whole, found.values()))
    for regex, stops, count, expected in (
        ("a(b|bb|bbb)", Stops(strings=("bb",)), 12, {("ab", "eos"), ("abb", "eos"), ("ab", "stop")}),
        ("axa|aya?", Stops(ids=(ord("x"),)), 12, {("ay", "stop")}),
    ):
        ends = [end_of(constrained(backend, regex, seed=seed, stops=stops)) for seed in range(count)]
        assert {(end.text, end.reason) for end in ends} == expected, regex


@BACKENDS
def test_no_minimum_outlives_the_grammar(backend):
    def ends(chain):
        return [end_of(constrained(backend, "green(ish)?", seed=seed, chain=chain)) for seed in range(8)]

    assert {end.text for end in ends("")} == {"green", "greenish"}
    for chain in ("min_tokens=7", "ignore_eos=true"):
        assert {(end.text, end.reason) for end in ends(chain)} == {("greenish", "grammar")}, chain
    longest = end_of(constrained(backend, chain="min_tokens=150 | ignore_eos=true"))
    assert (longest.reason, is_whole(longest)) == ("grammar", True)


@BACKENDS
def test_truncation_sees_what_the_grammar_leaves(backend):
    for seed in range(2):
        best = end_of(constrained(backend, seed=seed, chain="temperature=0"))
        assert is_whole(best)
        for cut in CUTS:
            assert outcome(end_of(constrained(backend, seed=seed, chain=cut))) == outcome(best), cut


def outcomes(requests, **options):
    return {key: outcome(end) for key, end in generate(requests, **options).items()}


@BACKENDS
def test_n_samples_are_documents_of_their_own_however_many_run_at_once(backend):
    one = constrained(backend, n=3)
    ends = generate([one])
    assert all(map(is_whole, ends.values()))
    assert outcome(ends["k", 0]) == outcome(end_of(replace(one, n=1)))
    assert len({end.text for end in ends.values()}) == 3
    assert outcomes([one], max_batch=2) == {key: outcome(end) for key, end in ends.items()}
    one = constrained(backend, n=2, chain="frequency=1 | top_p=0.9", stops=Stops(strings=("x",)))
    assert outcomes([one]) == outcomes([replace(one, jump="off")])


def mixed():
    """Rows under both back ends, lists, expressions and nothing, with other stages beside them."""
    choice = GrammarParams(json.dumps(["yes", "no", "nobody"]), kind="choice", backend="trie")
    rows = [replace(request("?", key="choice", seed=1), chain=Chain((("grammar", choice),)))]
    rows += [request("?", key="free", seed=2), request("?", key="penalised", seed=3, chain="frequency=2")]
    for backend in ("xgrammar", "llguidance"):
        rows.append(constrained(backend, key=f"{backend} schema"))
        rows.append(constrained(backend, "(ab|c)+d", key=f"{backend} regex", seed=4, chain="top_p=0.9"))
        rows.append(constrained(backend, key=f"{backend} penalised", chain="presence=3 | min_p=0.01", n=2))
        rows.append(constrained(backend, key=f"{backend} stops", stops=Stops(strings=("}", "x"))))
    return rows


def test_a_batch_of_mixed_constraints_is_each_of_them_alone():
    rows, alone = mixed(), {}
    for one in rows:
        alone |= outcomes([one])
    assert outcomes(rows, max_batch=3) == alone


LISTS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "items": {"type": "array", "items": {"type": "string"}},
        "note": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("first", "second", "third")},
            "required": ["first", "second", "third"],
        },
    },
    "required": ["text"],
}


def lists(seed, max_tokens, **rest):
    return record(f"r{seed}", seed=seed, schema=LISTS, max_tokens=max_tokens, **rest)


def is_document(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def check_ends(max_tokens, backend):
    ends = generate([lists(seed, max_tokens, backend=backend) for seed in range(12)])
    assert {(end.reason, end.document, is_document(end.text)) for end in ends.values()} <= {
        ("grammar", "over", True),
        ("eos", "over", True),
        ("length", "complete", True),
    }, (max_tokens, backend)


def test_a_document_that_can_be_ended_in_time_is():
    for case in ((24, "xgrammar"), (40, "llguidance"), (160, "xgrammar")):
        check_ends(*case)


PATTERNS = (
    {"format": "email"},
    {"pattern": "^a.*b$"},
    {"pattern": "^[a-z]+@[a-z]+[.]com$"},
    {"minLength": 4},
)


def strings(seed, pattern, max_tokens, **rest):
    schema = {"type": "array", "items": {"type": "string", **pattern}, "minItems": 1}
    return record(f"r{seed}", seed=seed, schema=schema, max_tokens=max_tokens, **rest)


def check_strings(pattern, backend, limits):
    ends = generate([strings(seed, pattern, limit, backend=backend) for seed, limit in enumerate(limits)])
    assert {end.document for end in ends.values()} <= {"over", "complete"}, (pattern, backend)


def check_company(rows):
    """Neighbours and drafts change nothing."""
    together = tokens_of(rows, max_batch=3)[:2]
    assert tokens_of(off(rows), max_batch=2)[:2] == together
    alone = [tokens_of([one])[0] for one in rows]
    assert {key: ids for found in alone for key, ids in found.items()} == together[0]


def test_strings_with_a_pattern_are_brought_to_their_end():
    check_strings(PATTERNS[0], "xgrammar", (40,))
    check_strings(PATTERNS[1], "llguidance", (17,))


def test_the_way_to_the_end_does_not_depend_on_drafts_or_neighbours():
    check_company([lists(seed, 40) for seed in range(3)])


def test_without_the_budget_in_view_documents_are_cut_and_far_from_the_limit_it_changes_nothing():
    free = {"in_budget": False}
    cut = generate([lists(seed, 40, grammar=free) for seed in range(12)])
    assert sum(end.document == "open" for end in cut.values()) > 6
    in_view, not_in_view = (
        [record(f"r{seed}", seed=seed, max_tokens=900, grammar=grammar) for seed in range(4)]
        for grammar in (None, free)
    )
    assert tokens_of(in_view)[:2] == tokens_of(not_in_view)[:2]


def test_a_cut_document_is_completed_if_asked_for():
    for limits in (Limits(3), Limits(12), Limits(31)):
        rows = [replace(lists(s, 1, grammar={"in_budget": False}), limits=limits) for s in range(5)]
        cut = generate(rows)
        completed = generate([replace(one, finish_open=True) for one in rows])
        for key, end in completed.items():
            assert is_document(end.text), limits
            if cut[key].document == "open":
                assert (end.reason, end.matched, end.document) == ("closed", "max_tokens", "complete"), limits
                assert end.text.startswith(cut[key].text.rstrip("\ufffd")), limits
                assert end.completion_tokens > cut[key].completion_tokens == limits.max_tokens
                assert end.decoded_tokens == cut[key].decoded_tokens == limits.max_tokens
            else:
                assert (end.text, end.closing_tokens) == (cut[key].text, 0), limits


def test_the_context_is_a_limit_as_well_and_a_text_without_a_grammar_is_cut():
    end = generate([lists(0, 5000, grammar={"whitespace": 0}, finish_open=True)])["r0", 0]
    assert not isinstance(end, Error)
    assert is_document(end.text)
    plain = replace(lists(0, 9), finish_open=True)
    plain = replace(plain, chain=replace(plain.chain, stages=plain.chain.stages[1:]))
    end = generate([plain])["r0", 0]
    assert (end.reason, end.matched, end.completion_tokens) == ("length", "max_tokens", 9)
