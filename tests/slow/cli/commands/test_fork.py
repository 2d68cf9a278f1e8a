"""gencli fork: other continuations of a traced text, shown and walked through."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Request
from tests.cli.commands.test_fork import nodes, trace
from tests.engine.harness import TOKENIZER, Token, engine


def records(trace):
    return [one for one in map(json.loads, trace.read_text().splitlines()) if one["kind"] == "token"]


def test_a_child_is_what_a_run_that_began_with_these_tokens_is(gencli, trace):
    ids = [one["id"] for one in records(trace)]
    found = nodes(gencli, trace, "--at", "5", "-n", "4")
    assert [(one["id"], one["at"], one["given"]) for one in found] == [(n, 5, False) for n in range(1, 5)]
    assert all(one["kept"] == 5 and len(one["ids"]) == 15 for one in found)
    assert len({tuple(one["ids"]) for one in found} | {tuple(ids[5:])}) == 5
    assert nodes(gencli, trace, "--at", "5", "-n", "4") == found
    assert nodes(gencli, trace, "--at", "5", "-n", "4", "--seed", "9") != found

    # Its request on an engine of its own: the same chain, limits and seed.
    from processors.chain import Chain

    before = tuple(one["id"] for one in records(trace))[:8]
    (child,) = nodes(gencli, trace, "--at", "8")
    chain = Chain.parse("allowed=[97,98,99,100,32] | frequency=1 | temperature=2 | top_k=4")
    wanted = Request("x", tuple(TOKENIZER.encode("the cat")), chain, seed=child["seed"])
    on = engine()
    on.submit(replace(wanted, prefix=before, limits=replace(wanted.limits, max_tokens=20)))
    ids = [token for event in on.run() if isinstance(event, Token) for token in event.ids]
    assert tuple(ids) == (*before, *child["ids"])

    top = records(trace)[4]["raw"]["top"]
    for rank in (1, 2, 3):
        (child,) = nodes(gencli, trace, "--at", "4", "--rank", str(rank))
        assert (child["ids"][0], child["given"]) == (top[rank - 1][0], True)
        assert child["p"] == pytest.approx(top[rank - 1][2], rel=1e-4)
    (child,) = nodes(gencli, trace, "--at", "0", "--token", r"\x5a")
    assert (child["token"], child["kept"], child["text"][0]) == ("Z", 0, "Z")


def test_what_cannot_be_is_refused(gencli, trace):
    for words, said in [
        ((), "needs --at"),
        (("--at", "20"), "Position 20 is behind the text, whose 20 tokens"),
        (("--at", "1", "--token", "ab"), "'ab' is no single token of the model; it is made of 'a' 'b'"),
        (("--at", "1", "--token", ""), "no single token"),
        (("--at", "1", "--token", "a", "--rank", "1"), "--token and --rank"),
        (("--at", "1", "--rank", "999"), "No token has rank 999: the model has 258"),
        (("--at", "1", "--node", "1"), "--node names a text of a tree"),
        (("--at", "1", "--format", "yaml"), "not one of text, jsonl"),
        (("--at", "1", "--output", "x"), "--output is not for gencli fork"),
        (("--at", "1", "-n", "0"), "--n"),
        (("--at", "1", "--plugin", "x.py"), "The run had no --plugin"),
    ]:
        found = gencli("fork", trace, *words)
        assert (found.code, found.out) == (2, ""), words
        assert said in found.err, words
