"""gencli fork: other continuations of a traced text, shown and walked through."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Request
from gencli.explain.tree_file import read_tree
from tests.cli.commands.test_fork import LETTERS, RUN, nodes, trace
from tests.engine.harness import TOKENIZER, Token, engine
from tests.helpers.pairs import PLUGIN


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
        (("--at", "20"), "The text has no position 20; its last one is 19."),
        (("--at", "1", "--token", "ab"), "'ab' is no single token of the model; it is made of 'a' 'b'"),
        (("--at", "1", "--token", ""), "no single token"),
        (("--at", "1", "--token", "a", "--rank", "1"), "--token and --rank"),
        (("--at", "1", "--rank", "999"), "No token has rank 999: the model has 258"),
        (("--at", "1", "--node", "1"), "--node names a text of a tree"),
        (("--at", "1", "--format", "yaml"), "not one of text, jsonl"),
        (("--at", "1", "--output", "x"), "gencli fork does not take --output"),
        (("--at", "1", "-n", "0"), "--n"),
        (("--at", "1", "--plugin", "x.py"), "The run had no --plugin"),
    ]:
        gencli("fork", trace, *words).refused(said)


def test_a_tree_grows_and_is_shown(gencli, trace, tmp_path):
    tree = tmp_path / "tree.jsonl"
    assert gencli("fork", trace, "--at", "5", "-n", "2", "--tree", tree).code == 0
    assert gencli("fork", trace, "--at", "6", "--tree", tree).code == 0
    said = gencli("fork", tree, "--at", "9", "--node", "2", "--token", "Q")
    assert said.out.startswith('== node 4, at 9 "Q" ')
    assert "1 child in " in said.err
    found = read_tree(tree)
    assert [(one.id, one.parent, one.at) for one in found.nodes.values()] == [
        (0, None, 0), (1, 0, 5), (2, 0, 5), (3, 0, 6), (4, 2, 9),
    ]  # fmt: skip
    assert found.text(4)[:10] == found.text(2)[:9] + "Q"
    assert said.out.endswith(found.text(4) + "\n")
    shown = gencli("fork", "show", tree).out.splitlines()
    assert shown[0] == 'fake, seed 3, 5 texts, prompt "the cat"'
    assert [line[:6].rstrip() for line in shown[2:]] == ["0", "  1", "  2", "    4", "  3"]
    lines = gencli("fork", "show", tree, "--format", "jsonl").lines
    assert [one["id"] for one in lines] == [0, 1, 2, 4, 3]
    assert gencli("fork", "show", tree, "--html", tmp_path / "tree.html").code == 0
    assert (tmp_path / "tree.html").read_text().startswith("<!doctype html>")


def test_one_of_several_texts_is_chosen_and_code_has_to_be_given_again(gencli, tmp_path):
    trace = tmp_path / "t"
    assert gencli(*RUN, *LETTERS, "-n", "2", "one", "two", "--trace", trace).code == 0
    gencli("fork", trace, "--at", "1").refused("--run 1 --sample 1")
    found = nodes(gencli, trace, "--at", "1", "--run", "2", "--sample", "2")
    assert found[0]["kept"] == 1
    assert "no such text" in gencli("fork", trace, "--at", "1", "--run", "5").err

    trace = tmp_path / "t"
    assert gencli(*RUN, "--plugin", PLUGIN, "--stage", "max_run=1", "hi", "--trace", trace).code == 0
    gencli("fork", trace, "--at", "1").refused(f"The run had --plugin {PLUGIN}")
    assert gencli("fork", trace, "--at", "1", "--plugin", PLUGIN).code == 0


def test_other_files_are_refused(gencli, trace, tmp_path):
    other = tmp_path / "other"
    other.write_text("hello\n")
    assert gencli("fork", other, "--at", "1").code == 6
    assert gencli("fork", tmp_path / "none", "--at", "1").code == 2
    assert gencli("fork").code == 2
    assert gencli("fork", "show", trace).code == 6
    assert gencli("fork", "show", "--at", "1", trace).code == 2
    assert "needs a terminal" in gencli("fork", "walk", trace).err
    tree = tmp_path / "tree"
    assert gencli("fork", trace, "--at", "1", "--tree", tree).code == 0
    assert "--tree has no effect" in gencli("fork", tree, "--at", "1", "--tree", tree).err
    assert "no node 9" in gencli("fork", tree, "--at", "1", "--node", "9").err
    assert gencli(*RUN, *LETTERS, "other", "--trace", trace).code == 0
    assert "began with another text" in gencli("fork", trace, "--at", "1", "--tree", tree).err
    lines = trace.read_text().splitlines()
    head = {key: value for key, value in json.loads(lines[0]).items() if key != "preset"}
    trace.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    assert "lacks the settings of its run" in gencli("fork", trace, "--at", "1").err


def test_the_grammar_of_a_run_is_kept_and_its_file_may_not_change(gencli, tmp_path):
    trace, grammar = tmp_path / "t", tmp_path / "own.gbnf"
    grammar.write_text('root ::= "a" [bc]{10} "d"\n')
    run = ("run", "-m", "fake", "-q", "--seed", "1", "--grammar", grammar, "hi", "--trace", trace)
    assert gencli(*run).code == 0
    found = nodes(gencli, trace, "--at", "4", "-n", "3")
    texts = ["".join(map(chr, one["ids"])) for one in found]
    assert all(len(text.rstrip("\u0101\u0100")) == 8 for text in texts), texts
    gencli("fork", trace, "--at", "4", "--token", "X").refused(
        "Token 5 of the 5 that the output begins with is impossible", code=6
    )
    grammar.write_text('root ::= "x"\n')
    assert "has changed since" in gencli("fork", trace, "--at", "4").err


def test_a_text_of_another_model_is_refused_and_what_a_trace_sets_runs_no_code(gencli, trace, tmp_path):
    text = trace.read_text()
    trace.write_text(text.replace('"id": 97, "text": "a"', '"id": 98, "text": "a"'))
    assert "another model wrote the text." in gencli("fork", trace, "--at", "1").err
    trace.write_text(text.replace('"id": 97,', '"id": 999999999,'))
    assert "another model wrote the text." in gencli("fork", trace, "--at", "1").err
    trace.write_text(text.replace('model: \\"fake\\"', 'model: \\"nobody/none\\"'))
    found = gencli("fork", trace, "--at", "1")
    assert (found.code, "gencli models pull" in found.err) == (5, True)

    text = trace.read_text()
    for key, value in (("output", "x"), ("download", "true"), ("plugin", "x.py"), ("trace", "x")):
        trace.write_text(text.replace('"preset": "', f'"preset": "{key}: {value}\\n'))
        gencli("fork", trace, "--at", "1").refused(key, code=3)


def test_the_chain_of_a_child_is_the_whole_one_of_the_run(gencli, tmp_path):
    """Profiles, presets, a text at its own token: with top_k 1 every child is the text again."""
    trace, preset = tmp_path / "t", tmp_path / "own.yaml"
    preset.write_text("ban: [ab]\nmin_tokens: 15\nmax_tokens: 15\nstages:\n  top_k: 1\n")
    words = ("--compat", "llama-cpp", "--preset", preset, *LETTERS, "--stop", "ddd", "hi", "--trace", trace)
    made = gencli("run", "-m", "fake", "-q", "--seed", "1", *words)
    assert made.code == 0
    assert len(made.out) == 16
    preset.unlink()
    for at in ("0", "7", "14"):
        out = gencli("fork", trace, "--at", at, "-q").out
        assert out.partition("\n")[2] == made.out
