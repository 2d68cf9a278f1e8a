"""gencli fork: other continuations of a traced text, shown and walked through."""

import json

import pytest

from gencli.explain.tree_file import read_tree
from gencli.files import locked

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


def test_a_tree_has_one_writer(gencli, trace, tmp_path):
    tree = tmp_path / "tree"
    with locked(tree):
        found = gencli("fork", trace, "--at", "1", "--tree", tree)
    assert (found.code, "is being written by process" in found.err) == (2, True)
    assert not tree.exists()


def edited(trace, **fields):
    """Change the fields of a trace's head, which are functions of their values."""
    head, *rest = trace.read_text().splitlines()
    line = json.loads(head)
    trace.write_text("\n".join([json.dumps({**line, **{k: f(line[k]) for k, f in fields.items()}}), *rest]))


def test_no_child_within_the_time_is_an_error(gencli, trace, tmp_path):
    edited(trace, preset=lambda text: f"{text}max_time: 0.000001\n")
    for words in ((), ("-n", "2"), ("--rank", "2"), ("--tree", tmp_path / "tree")):
        found = gencli("fork", trace, "--at", "5", *words)
        assert (found.code, found.out) == (6, ""), words
        assert "The text ended before its first new token: --max-time." in found.err, words
    assert not (tmp_path / "tree").exists()
