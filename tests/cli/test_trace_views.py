"""A trace shown live, and walks by keys through a trace and a tree."""

import json
import os
import unicodedata

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from gencli.cli.fork_walk import follow, keys_of, read_keys
from gencli.cli.navigation_pages import bar, draw, tree_page, walk_through
from gencli.cli.render import Sink
from gencli.cli.trace_views import HELP, KEYS, TraceWalk, TreeWalk, press, show_live
from gencli.errors import GenerationError, UsageError
from gencli.explain.text_sets import Node
from tests.cli.records import record, text
from tests.explain.test_tree_file import CHILD, FIRST, GRAND, HEAD, OTHER, Tree


def head(sample=0, **more):
    return json.dumps({"v": 1, "kind": "text", "run": "1", "sample": sample, **more})


def token(pos, text, sample=0, **more):
    return json.dumps({"v": 1, "kind": "token", **record(pos, text), "sample": sample, **more})


def end(sample=0):
    return json.dumps({"v": 1, "kind": "end", "run": "1", "sample": sample, "reason": "eos", "tokens": 1})


@pytest.fixture
def shown(capsys):
    """Show lines; the result has how many texts were shown, and what was written."""
    return lambda lines, **chosen: (show_live(iter(lines), Sink(), **chosen), capsys.readouterr().out)


def test_tokens_are_shown_as_they_come(capsys):
    def lines():
        yield head()
        yield token(0, "ab")
        assert capsys.readouterr().out == "ab"
        yield token(1, " c", raw={**record(0, p=0.05)["raw"]})
        assert capsys.readouterr().out == " <c>"
        yield end()
        pytest.fail("it ends with its last text")

    assert show_live(lines(), Sink()) == 1
    page = capsys.readouterr().out
    assert page.startswith("\n\n2 tokens   2.0 bits, 1.00 a token\nplain p > .5")
    assert "top_k  4/2" in page


def test_texts_wait_for_the_first_one_are_counted_and_chosen(shown):
    count, out = shown([head(), head(1), token(0, "b", 1), token(0, "a"), end(1), end()])
    assert count == 2
    assert out.index("== 1.1\na") < out.index("== 1.2\nb")

    lines = [head(texts=2), token(0, "a"), end(), head(1, texts=2), token(0, "b", 1), end(1)]
    assert shown([*lines, "no line"])[0] == 2

    lines = [head(), head(1), token(0, "a"), token(0, "b", 1), end(), end(1)]
    assert "== 1.1" not in shown(lines, sample=2)[1]
    assert shown(lines, request="7") == (0, "")


def test_characters_are_whole_and_do_nothing(shown):
    parts = [
        token(0, "\ufffd", bytes="w6k="[:4]),
        token(1, "\ufffd", bytes="4oI="),
        token(2, "x", bytes="rA=="),
    ]
    assert "\u00e9\u20ac" in shown([head(), *parts, end()])[1]

    assert "a\\x1b[2J" in shown([head(), token(0, "a\x1b[2J"), end()])[1]


def test_a_broken_trace_is_bounded_and_said_on_a_line(capsys, monkeypatch):
    with pytest.raises(GenerationError):
        show_live(iter([head(), token(0, "a"), "{"]), Sink())
    assert capsys.readouterr().out == "a\n"

    monkeypatch.setattr("gencli.cli.trace_views._MAX_HELD", 3)
    lines = [head(), head(1), *(token(at, "a", 1) for at in range(9))]
    with pytest.raises(GenerationError, match="wait for an earlier one"):
        show_live(iter(lines), Sink())
    monkeypatch.setattr("gencli.cli.trace_views._MAX_TEXTS", 3)
    with pytest.raises(GenerationError, match="more than 3 texts"):
        show_live(iter(map(head, range(9))), Sink())


def test_a_trace_that_is_complete_is_shown_at_once(gencli, tmp_path):
    file = tmp_path / "t.jsonl"
    gencli("run", "-m", "fake", "-n", "2", "--max-tokens", "5", "--trace", file, "a")
    found = gencli("explain", file, "--live")
    assert (found.code, found.err) == (0, "")
    assert found.out.count("most surprising: ") == 2
    assert gencli("explain", file, "--live", "--sample", "7").code == 2


TEXT = text(
    record(0),
    record(1, decided=["top_k"]),
    record(2, surprise=None, stages=1),
    record(3, "c\nd\n", p=0.05, decided=["top_k"], surprise=5.0),
)


def pressed(walk, *keys):
    for key in keys:
        walk = press(walk, key)
    return walk


def test_a_key_leads_to_a_token_a_stage_or_a_text():
    for keys, token, stage in [
        (("left",), 0, 0),
        (("right",), 1, 0),
        (("right",) * 9, 3, 0),
        (("end", "home", "right"), 1, 0),
        (("pagedown", "left"), 2, 0),
        (("down",), 0, 1),
        (("down",) * 9, 0, 3),
        (("up",), 0, 0),
        (("down",) * 3 + ("right", "right"), 2, 2),  # that token has one stage less
        (("n",), 1, 0),
        (("n", "n"), 3, 0),
        (("u",), 2, 0),
        (("u", "u"), 3, 0),
        (("x",), 0, 0),
    ]:
        walk = pressed(TraceWalk((TEXT,)), *keys)
        assert (walk.token, walk.stage) == (token, stage), keys

    walk = TraceWalk((TEXT, text(record(0), sample=1)), token=3)
    assert (pressed(walk, "t").text, pressed(walk, "t").token) == (1, 0)
    assert pressed(walk, "t", "t").text == 0


def test_panels_and_notes_come_and_go():
    walk = TraceWalk((TEXT,))
    assert pressed(walk, "a").panel == "alternatives"
    assert pressed(walk, "a", "a").panel == "distribution"
    assert pressed(walk, "a", "?").panel == "help"
    assert pressed(walk, "q").is_over

    walk = pressed(TraceWalk((TEXT,)), "end", "n")
    assert walk.note == "No stage decided a later token."
    assert "4 bits" in pressed(walk, "u").note
    assert pressed(walk, "left").note == ""

    lines = plain(pressed(TraceWalk((TEXT,)), "?"), height=40)
    assert [key for key in KEYS if not any(line.split()[:1] == [key] for line in lines)] == []


def plain(walk, width=100, height=30):
    return ["".join(part for _, part in line) for line in draw(walk, width, height)]


def test_hostile_texts_are_shown_as_escapes():
    evil = "\x1b[2J\u202e\x9b1m\r"
    walk = TraceWalk((text(record(0, evil, name=evil, decided=[evil])),))
    for keys in ((), ("down",), ("a",)):
        shown = "".join(plain(pressed(walk, *keys), 400, 60))
        assert {unicodedata.category(char) for char in shown}.isdisjoint({"Cc", "Cf"})


def test_a_screen_has_text_stages_and_the_distribution_behind_the_chosen_one():
    for p, cells in [(0, ""), (1, "█" * 20), (0.5, "█" * 10), (0.00625, "▏"), (2.0, "█" * 20), (None, "")]:
        assert bar(p) == cells.ljust(20), p

    lines = plain(pressed(TraceWalk((TEXT,)), "down"))
    assert lines[0].startswith('token 0 of 4   "ab"   id 1')
    assert lines[1] == "ababab" + "c⏎"
    assert [line[:8] for line in lines if line.startswith((">", "  raw"))] == ["  raw   ", "> top_k "]
    assert "behind top_k, entropy 1.00 nats" in lines
    assert f'  "ab"   {bar(0.5)} .500' in lines
    assert lines[-1].endswith("q leave")

    lines = plain(pressed(TraceWalk((TEXT,)), "a"))
    rows = [line.split() for line in lines if line.startswith('  "')]
    assert rows == [
        ['"ab"', ".500", ".500", "drawn"],
        ['"xy"', ".250", ".250"],
        ['"no"', ".100", "-", "removed", "by", "top_k"],
    ]


TWO_TOKENS = text(record(0), record(1, decided=["top_k"]))


def test_keys_lead_until_one_leaves():
    for keys, token in [("\x1b[Cq", 1), ("nq", 1), ("x\x03", 0), ("n\x04", 1)]:
        with create_pipe_input() as source:
            source.send_text(keys)
            assert walk_through(TraceWalk((TWO_TOKENS,)), source, DummyOutput()).token == token, keys


TREE = Tree(HEAD).grown([FIRST, CHILD, GRAND, OTHER])


def after(*keys, loom=None):
    """The walk after keys, and the actions that they asked for."""
    loom, actions = loom or TreeWalk(TREE), []
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
        assert (loom.node, loom.token, actions) == (node, place, []), keys

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
    assert ([*loom.pruned().tree.nodes], loom.pruned().node, loom.pruned().token) == ([0, 3], 0, 2)
    assert "The first text of the tree cannot be pruned." in after("x")[0].message


def test_after_growing_it_is_at_the_first_new_text_and_errors_are_shown():
    new = [Node(4, 0, 2, "N", "N", (78,), 2), Node(5, 0, 2, "M", "M", (77,), 2)]
    assert (TreeWalk(TREE).grown(new).node, TreeWalk(TREE).grown(new).token) == (4, 2)
    assert TreeWalk(TREE).grown([]) == TreeWalk(TREE)

    drawn = []

    def act(loom, action):
        raise UsageError("No.")

    end = follow(TreeWalk(TREE), ["n", "right", "q", "left"], drawn.append, act)
    assert [loom.message for loom in drawn] == ["", "No.", ""]
    assert end.node == 3


def test_the_page_shows_nodes_the_place_and_the_keys():
    loom, _ = after("right", "down", "]")
    lines = [line.plain for line in tree_page(loom, ["a", "b", "X", "Y\n"], 100, 20)]
    assert [line[:8].rstrip() for line in lines[:4]] == ["  0", "    3", ">   1", "      2"]
    assert lines[4:] == ["", "abX[Y\\n]", HELP]

    evil = Node(0, None, 0, "\x1b[2J", "\x1b[2J\t\x9b", (1, 2), reason="\x1b[2J")
    lines = tree_page(TreeWalk(Tree(HEAD).grown([evil])), ["\x1b[2J", "\t\x9b"], 80, 24)
    assert "".join(line.plain for line in lines).isprintable()


def test_a_page_has_its_size_and_the_place_in_it():
    pieces = [f"w{n} " for n in range(500)]
    nodes = [Node(0, None, 0, "w", "".join(pieces), tuple(range(500)))]
    nodes += [Node(n, 0, n, "w", "w", (1,), 1) for n in range(1, 200)]
    for place in [0, 250, 499]:
        loom = TreeWalk(Tree(HEAD).grown(nodes), 0, place)
        for width, height in ((80, 24), (40, 8), (20, 3)):
            lines = [line.plain for line in tree_page(loom, pieces, width, height)]
            assert len(lines) <= height, place
            assert f"[w{place} ]" in " ".join(lines).replace("  ", " ") or width == 20, place
            assert lines[-1] == HELP, place


def keys(*bursts):
    """The keys of bytes that come in bursts, between which a sequence would have ended."""
    waiting = [[bytes([byte]) for byte in burst] for burst in bursts]

    def read(seconds):
        if waiting and not waiting[0]:
            waiting.pop(0)
            if seconds is not None:
                return b""
        while waiting and not waiting[0]:
            waiting.pop(0)
        return waiting[0].pop(0) if waiting else b""

    return [*keys_of(read)]


def test_bytes_are_keys(monkeypatch):
    for sent, pressed in [
        (b"nq", ["n", "q"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1b[H\x1b[F\x1b[1~\x1b[4~", ["up", "home", "end", "home", "end"]),
        (b"\r\n", ["enter", "enter"]),
        ("é€😀".encode(), ["é", "€", "😀"]),
        (b"\x1b[15~x", ["f5", "x"]),
        (b"\x1b[" + b"1" * 40, ["escape", "[", *"1" * 40]),
        (b"\x1bx", ["escape", "x"]),
        (b"\xff", ["\ufffd"]),
    ]:
        assert keys(sent) == pressed, sent

    assert keys(b"\x1b", b"n") == ["escape", "n"]
    assert keys(b"\x1b[A", b"\x1b") == ["up", "escape"]

    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with pytest.raises(UsageError, match="from a terminal"):
            read_keys()
