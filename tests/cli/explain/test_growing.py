"""Children of a text, grown on a model that stays loaded."""

import pytest

from gencli.cli.forking import grower_of
from gencli.cli.stderr import Stderr
from gencli.errors import UsageError
from gencli.explain.forks import Cut, token_of
from gencli.explain.text_sets import Tree
from gencli.explain.trace_file import read_trace
from gencli.explain.tree_file import checked_head
from gencli.models.files.local_models import bundled_folder
from gencli.text.tokenizer import HFTokenizer

RUN = ("run", "-m", "fake", "-q", "--seed", "1", "--allow-ids", "97,98,99", "--max-tokens", "30")
NO_CODE = {"plugin": (), "pydantic": None, "trust_remote_code": False, "debug": False}


@pytest.fixture
def grown(gencli, tmp_path):
    """A loaded model, and the tree of a traced text."""
    trace = tmp_path / "trace"
    assert gencli(*RUN, "hi", "--trace", trace).code == 0
    (text,) = read_trace(trace.read_text().splitlines())
    head = checked_head(text.head)
    with grower_of(head, NO_CODE, 2, Stderr(is_quiet=True)) as grower:
        yield grower, Tree(head).grown([grower.forks.root(text)])


def test_an_interrupt_ends_the_children_with_their_texts_so_far_and_the_next_ones_grow(grown):
    grower, tree = grown
    stop = grower.ready.engine.interrupt
    growth = grower.grow(tree, Cut(0, 3), 2, on_event=lambda event: stop())
    assert growth.results.exit_code == 130
    whole = grower.grow(tree, Cut(0, 3), 2)
    assert whole.results.exit_code == 0
    for short, long in zip(growth.nodes, whole.nodes, strict=False):
        assert short.reason == "interrupted"
        assert long.ids[: len(short.ids)] == short.ids


def test_children_grow_from_children(grown):
    grower, tree = grown
    for at in (3, 5, 9):
        node = max(tree.nodes)
        tree = tree.grown(grower.grow(tree, Cut(node, at, token=97), 1).nodes)
        assert tree.text(node + 1)[:at] == tree.text(node)[:at]
        assert tree.text(node + 1)[at] == "a"
        assert "".join(grower.forks.pieces(tree, node + 1)) == tree.text(node + 1)


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
