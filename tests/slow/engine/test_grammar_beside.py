"""A grammar of each back end beside everything else that decides about tokens: both keep their word."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Stops
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import generate, request

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
        for seed in range(8):  # only the sixth byte is a choice, after five b that nobody chose
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
        ("a(b|bb|bbb)", Stops(strings=("bb",)), 24, {("ab", "eos"), ("abb", "eos"), ("ab", "stop")}),
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
    one = constrained(backend, n=5)
    ends = generate([one])
    assert all(map(is_whole, ends.values()))
    assert outcome(ends["k", 0]) == outcome(end_of(replace(one, n=1)))
    assert len({end.text for end in ends.values()}) == 5
    assert outcomes([one], max_batch=2) == {key: outcome(end) for key, end in ends.items()}
    one = constrained(backend, n=4, chain="frequency=1 | top_p=0.9", stops=Stops(strings=("x",)))
    assert outcomes([one], max_batch=3) == outcomes([replace(one, jump="off")], max_batch=3)


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
    for max_batch in (3, 16):
        assert outcomes(rows, max_batch=max_batch) == alone, max_batch
