"""A grammar of each back end beside everything else that decides about tokens: both keep their word."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Stops
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import TOKENIZER, Scripted, generate, request

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


@BACKENDS
def test_penalties_do_not_count_tokens_without_a_choice(backend):
    for penalty in PENALTIES:
        seen = set()
        for seed in range(12):  # only the sixth byte is a choice, after five b that nobody chose
            plain = end_of(constrained(backend, "bbbbb(b|c)bbb2", seed=seed))
            assert outcome(
                end_of(constrained(backend, "bbbbb(b|c)bbb2", seed=seed, chain=penalty))
            ) == outcome(plain), penalty
            seen.add(plain.text)
        assert len(seen) == 2, penalty


@BACKENDS
def test_penalties_do_not_break_a_document(backend):
    for penalty in PENALTIES:
        rows = [constrained(backend, key=f"r{seed}", seed=seed, chain=penalty) for seed in range(4)]
        assert all(map(is_whole, generate(rows).values())), penalty


@BACKENDS
def test_penalties_count_what_was_chosen(backend):
    plain, penalised = (
        end_of(constrained(backend, "[bcd]{30}", chain=f"temperature=0{penalty}")).text
        for penalty in ("", " | frequency=50")
    )
    assert sorted(map(penalised.count, "bcd")) == [10, 10, 10] != sorted(map(plain.count, "bcd"))


@BACKENDS
def test_stop_strings_are_not_looked_for_inside_a_document(backend):
    stops = Stops(strings=('"', ",", "name", "}", "t"))
    rows = [constrained(backend, key=f"r{seed}", seed=seed, stops=stops) for seed in range(4)]
    plain = [replace(one, stops=Stops()) for one in rows]
    assert {end.text for end in generate(rows).values()} == {end.text for end in generate(plain).values()}
    assert all(map(is_whole, generate(rows).values()))


@BACKENDS
def test_stop_strings_count_behind_a_complete_text(backend):
    ends = [
        end_of(constrained(backend, "a(b|bb|bbb)", seed=seed, stops=Stops(strings=("bb",))))
        for seed in range(24)
    ]
    assert {(end.text, end.reason) for end in ends} == {("ab", "eos"), ("abb", "eos"), ("ab", "stop")}


@BACKENDS
def test_stop_ids_are_legal_only_where_the_text_is_complete(backend):
    stops = Stops(ids=(ord("x"),))
    ends = [end_of(constrained(backend, "axa|aya?", seed=seed, stops=stops)) for seed in range(12)]
    assert {(end.text, end.reason) for end in ends} == {("ay", "stop")}


@BACKENDS
def test_no_minimum_outlives_the_grammar(backend):
    for chain in ("min_tokens=7", "ignore_eos=true", "min_tokens=7 | ignore_eos=true"):
        plain = {end_of(constrained(backend, "green(ish)?", seed=seed)).text for seed in range(12)}
        assert plain == {"green", "greenish"}, chain
        ends = [end_of(constrained(backend, "green(ish)?", seed=seed, chain=chain)) for seed in range(12)]
        assert {(end.text, end.reason) for end in ends} == {("greenish", "grammar")}, chain
        longest = end_of(constrained(backend, chain="min_tokens=150 | ignore_eos=true"))
        assert (longest.reason, is_whole(longest)) == ("grammar", True), chain


@BACKENDS
def test_truncation_sees_what_the_grammar_leaves(backend):
    for cut in CUTS:
        for seed in range(3):
            best = end_of(constrained(backend, seed=seed, chain="temperature=0"))
            assert outcome(end_of(constrained(backend, seed=seed, chain=cut))) == outcome(best), cut
            assert is_whole(best), cut


@BACKENDS
def test_n_samples_are_documents_of_their_own_however_many_run_at_once(backend):
    one = constrained(backend, n=5)
    ends = generate([one])
    assert all(map(is_whole, ends.values()))
    assert outcome(ends["k", 0]) == outcome(end_of(replace(one, n=1)))
    assert len({end.text for end in ends.values()}) == 5
    assert {key: outcome(end) for key, end in generate([one], max_batch=2).items()} == {
        key: outcome(end) for key, end in ends.items()
    }


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
    for max_batch in (3, 16):
        rows = mixed()
        together = {key: outcome(end) for key, end in generate(rows, max_batch=max_batch).items()}
        alone = {}
        for one in rows:
            alone |= {key: outcome(end) for key, end in generate([one]).items()}
        assert together == alone, max_batch


BESIDE = (*PENALTIES, *CUTS, "min_tokens=90", "ignore_eos=true", "temperature=2 | frequency=1 | min_p=0.01")


@BACKENDS
def test_drafts_change_nothing_whatever_stands_beside_the_grammar(backend):
    for chain in BESIDE:
        stops = Stops(strings=("}", "a"), ids=(ord("!"),))
        one = constrained(backend, chain=chain, stops=stops, jump="off")
        plain = end_of(one)
        drafter = Scripted({one.prompt_ids: tuple(TOKENIZER.encode(plain.text))})
        assert outcome(end_of(one, drafter=drafter)) == outcome(plain), chain
        assert outcome(end_of(replace(one, jump="auto"))) == outcome(plain), chain
        assert drafter.proposed > 10, chain


@BACKENDS
def test_samples_with_drafts_are_those_without(backend):
    one = constrained(backend, n=4, chain="frequency=1 | top_p=0.9", stops=Stops(strings=("x",)))
    jumped, plain = (generate([replace(one, jump=jump)], max_batch=3) for jump in ("auto", "off"))
    assert {key: outcome(end) for key, end in jumped.items()} == {
        key: outcome(end) for key, end in plain.items()
    }
