"""A walk by keys, without a terminal: where a key leads, and what is drawn there."""

import unicodedata

from gencli.cli.navigation_pages import bar, draw
from gencli.cli.trace_views import KEYS, TraceWalk, press
from tests.cli.explain.records import record, text

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
