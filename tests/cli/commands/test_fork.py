"""gencli fork: other continuations of a traced text, shown and walked through."""

import json

import pytest

from gencli.cli.forking import grower_of
from gencli.cli.stderr import Stderr
from gencli.errors import UsageError
from gencli.explain.forks import Cut, token_of
from gencli.explain.text_sets import Tree
from gencli.explain.trace_file import read_trace
from gencli.explain.tree_file import checked_head, read_tree
from gencli.files import locked
from gencli.models.files.local_models import bundled_folder
from gencli.text.tokenizer import HFTokenizer

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
        gencli("fork", trace, "--at", "5", *words).refused(
            "The text ended before its first new token: --max-time.", code=6
        )
    assert not (tmp_path / "tree").exists()


BASE_RUN = ("run", "-m", "fake", "-q", "--seed", "1", "--allow-ids", "97,98,99", "--max-tokens", "30")
NO_CODE = {"plugin": (), "pydantic": None, "trust_remote_code": False, "debug": False}


@pytest.fixture
def grown(gencli, tmp_path):
    """A loaded model, and the tree of a traced text."""
    trace = tmp_path / "trace"
    assert gencli(*BASE_RUN, "hi", "--trace", trace).code == 0
    (text,) = read_trace(trace.read_text().splitlines())
    head = checked_head(text.head)
    with grower_of(head, NO_CODE, 2, Stderr(is_quiet=True)) as grower:
        yield grower, Tree(head).grown([grower.root(text)])


def test_an_interrupt_ends_the_children_with_their_texts_so_far_and_the_next_ones_grow(grown):
    grower, tree = grown
    stop = grower.engine.interrupt
    cut, results = grower.grow(tree, Cut(0, 3), 2, on_event=lambda event: stop())
    assert results.exit_code == 130
    whole, results = grower.grow(tree, Cut(0, 3), 2)
    assert results.exit_code == 0
    for short, long in zip(cut, whole, strict=False):
        assert short.reason == "interrupted"
        assert long.ids[: len(short.ids)] == short.ids


def test_children_grow_from_children(grown):
    grower, tree = grown
    for at in (3, 5, 9):
        node = max(tree.nodes)
        tree = tree.grown(grower.grow(tree, Cut(node, at, token=97), 1)[0])
        assert tree.text(node + 1)[:at] == tree.text(node)[:at]
        assert tree.text(node + 1)[at] == "a"
        assert "".join(grower.pieces(tree, node + 1)) == tree.text(node + 1)


def test_a_token_is_found_by_its_text_and_others_are_named():
    tokenizer = HFTokenizer.load(bundled_folder("tiny"))
    girl = token_of(" girl", tokenizer)
    assert tokenizer.decode([girl]) == " girl"
    assert (
        token_of(tokenizer.decode([tokenizer.eos_ids[0]], skip_special=False), tokenizer) in tokenizer.eos_ids
    )
    for text, near in (("GIRL", " girl"), (" girlfriend", " girl"), ("", "Nearest")):
        with pytest.raises(UsageError, match="no single token") as raised:
            token_of(text, tokenizer)
        assert near in raised.value.hint
