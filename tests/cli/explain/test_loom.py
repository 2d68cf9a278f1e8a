"""A walk through a tree: what keys do, and what is drawn."""

from gencli.cli.fork_walk import follow
from gencli.cli.navigation_pages import loom_page
from gencli.cli.trace_views import HELP, Loom
from gencli.errors import UsageError
from gencli.explain.text_sets import Node
from tests.explain.test_tree_file import CHILD, FIRST, GRAND, HEAD, OTHER, Tree

TREE = Tree(HEAD).grown([FIRST, CHILD, GRAND, OTHER])


def after(*keys, loom=None):
    """The walk after keys, and the actions that they asked for."""
    loom, actions = loom or Loom(TREE), []
    for key in keys:
        loom, action = loom.pressed(key)
        actions += [action] if action else []
    return loom, actions


def test_keys_move_and_ask_for_what_changes_the_tree():
    for keys, node, place in [
        ((), 0, 0),
        (("right",), 3, 1),
        (("]", "]", "enter"), 1, 2),
        (("end", "right"), 3, 1),
        (("right", "down"), 1, 2),
        (("right", "down", "up"), 3, 1),
        (("right", "down", "right"), 2, 3),
        (("right", "down", "right", "left"), 1, 3),
        (("right", "down", "end"), 1, 3),
        (("right", "down", "end", "home"), 1, 2),
        (("[",), 0, 0),
        (("]",) * 9, 0, 3),
        (("left",), 0, 0),
        (("down",), 0, 0),
    ]:
        loom, actions = after(*keys)
        assert (loom.node, loom.place, actions) == (node, place, []), keys

    assert after("n")[1] == ["grow"]
    assert after("e")[1] == ["export"]
    assert after("q")[1] == after("escape")[1] == ["leave"]
    assert after("?")[0].message == HELP


def test_pruning_is_asked_for_first_and_the_first_text_stays():
    loom, actions = after("right", "down", "x")
    assert (loom.message, actions) == ("Prune node 1 and 1 below it? y or n", [])
    assert after("n", loom=loom)[0].message == "Nothing is pruned."
    loom, actions = after("y", loom=loom)
    assert actions == ["prune"]
    assert ([*loom.pruned().tree.nodes], loom.pruned().node, loom.pruned().place) == ([0, 3], 0, 2)
    assert "stays" in after("x")[0].message


def test_after_growing_it_is_at_the_first_new_text_and_errors_are_shown():
    new = [Node(4, 0, 2, "N", "N", (78,), 2), Node(5, 0, 2, "M", "M", (77,), 2)]
    assert (Loom(TREE).grown(new).node, Loom(TREE).grown(new).place) == (4, 2)
    assert Loom(TREE).grown([]) == Loom(TREE)

    drawn = []

    def act(loom, action, draw):
        raise UsageError("No.")

    end = follow(Loom(TREE), ["n", "right", "q", "left"], drawn.append, act)
    assert [loom.message for loom in drawn] == ["", "No.", ""]
    assert end.node == 3


def test_the_page_shows_nodes_the_place_and_the_keys():
    loom, _ = after("right", "down", "]")
    lines = [line.plain for line in loom_page(loom, ["a", "b", "X", "Y\n"], 100, 20)]
    assert [line[:8].rstrip() for line in lines[:4]] == ["  0", "    3", ">   1", "      2"]
    assert lines[4:] == ["", "abX[Y\\n]", HELP]

    evil = Node(0, None, 0, "\x1b[2J", "\x1b[2J\t\x9b", (1, 2), reason="\x1b[2J")
    lines = loom_page(Loom(Tree(HEAD).grown([evil])), ["\x1b[2J", "\t\x9b"], 80, 24)
    assert "".join(line.plain for line in lines).isprintable()


def test_a_page_has_its_size_and_the_place_in_it():
    for place in [0, 250, 499]:
        pieces = [f"w{n} " for n in range(500)]
        nodes = [Node(0, None, 0, "w", "".join(pieces), tuple(range(500)))]
        nodes += [Node(n, 0, n, "w", "w", (1,), 1) for n in range(1, 200)]
        loom = Loom(Tree(HEAD).grown(nodes), 0, place)
        for width, height in ((80, 24), (40, 8), (20, 3)):
            lines = [line.plain for line in loom_page(loom, pieces, width, height)]
            assert len(lines) <= height, place
            assert f"[w{place} ]" in " ".join(lines).replace("  ", " ") or width == 20, place
            assert lines[-1] == HELP, place
