"""gencli fork: other continuations of a traced text, shown and walked through."""

import pytest

from gencli.explain.tree_file import read_tree
from gencli.lock import locked

RUN = ("run", "-m", "fake", "--seed", "3", "--max-tokens", "20", "--temperature", "2", "--top-k", "4", "-q")


LETTERS = ("--allow-ids", "97,98,99,100,32")


@pytest.fixture
def trace(gencli, tmp_path):
    """The trace of a run."""
    file = tmp_path / "trace.jsonl"
    assert gencli(*RUN, *LETTERS, "--frequency-penalty", "1", "the cat", "--trace", file).code == 0
    return file


def nodes(gencli, *words):
    found = gencli("fork", *words, "--format", "jsonl")
    assert found.code == 0, found.err
    return found.lines


def test_a_stop_string_may_lie_across_the_cut(gencli, tmp_path):
    trace = tmp_path / "t"
    assert gencli(*RUN, *LETTERS, "--stop", "cXd", "hi", "--trace", trace).code == 0
    nodes(gencli, trace, "--at", "3", "--token", "c", "--tree", tmp_path / "tree")
    found = nodes(gencli, tmp_path / "tree", "--at", "4", "--node", "1", "--token", "X")
    assert gencli("fork", tmp_path / "tree", "--at", "5", "--node", "2", "--token", "d").code == 0
    tree = read_tree(tmp_path / "tree")
    assert tree.nodes[3].reason == "stop"
    assert tree.text(3) == tree.text(0)[:3]
    assert len(found[0]["ids"]) > 1


def test_the_grammar_of_a_run_is_kept_and_its_file_may_not_change(gencli, tmp_path):
    trace, grammar = tmp_path / "t", tmp_path / "own.gbnf"
    grammar.write_text('root ::= "a" [bc]{10} "d"\n')
    run = ("run", "-m", "fake", "-q", "--seed", "1", "--grammar", grammar, "hi", "--trace", trace)
    assert gencli(*run).code == 0
    found = nodes(gencli, trace, "--at", "4", "-n", "3")
    texts = ["".join(map(chr, one["ids"])) for one in found]
    assert all(len(text.rstrip("\u0101\u0100")) == 8 for text in texts), texts
    said = gencli("fork", trace, "--at", "4", "--token", "X")
    assert said.code == 6
    assert "Token 5 of the 5 that the output begins with is impossible" in said.err
    assert said.out == ""
    grammar.write_text('root ::= "x"\n')
    assert "has changed since" in gencli("fork", trace, "--at", "4").err


def test_a_tree_has_one_writer(gencli, trace, tmp_path):
    tree = tmp_path / "tree"
    with locked(tree):
        found = gencli("fork", trace, "--at", "1", "--tree", tree)
    assert (found.code, "is being written by process" in found.err) == (2, True)
    assert not tree.exists()


def test_a_text_of_another_model_is_refused_and_what_a_trace_sets_runs_no_code(gencli, trace, tmp_path):
    text = trace.read_text()
    trace.write_text(text.replace('"id": 97, "text": "a"', '"id": 98, "text": "a"'))
    assert "the text is of another one" in gencli("fork", trace, "--at", "1").err
    trace.write_text(text.replace('"id": 97,', '"id": 999999999,'))
    assert "the text is of another one" in gencli("fork", trace, "--at", "1").err
    trace.write_text(text.replace('model: \\"fake\\"', 'model: \\"nobody/none\\"'))
    found = gencli("fork", trace, "--at", "1")
    assert (found.code, "gencli models pull" in found.err) == (5, True)

    text = trace.read_text()
    for key, value in (("output", "x"), ("download", "true"), ("plugin", "x.py"), ("trace", "x")):
        trace.write_text(text.replace('"preset": "', f'"preset": "{key}: {value}\\n'))
        found = gencli("fork", trace, "--at", "1")
        assert (found.code, key in found.err) == (3, True)


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
