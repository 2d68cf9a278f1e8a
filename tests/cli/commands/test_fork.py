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


def test_a_tree_has_one_writer(gencli, trace, tmp_path):
    tree = tmp_path / "tree"
    with locked(tree):
        found = gencli("fork", trace, "--at", "1", "--tree", tree)
    assert (found.code, "is being written by process" in found.err) == (2, True)
    assert not tree.exists()
