"""`scripts/contract.py`: what it masks, which differences are declared, and that it asks every command."""

import re
from pathlib import Path

import pytest

from scripts.contract import BASE, CASES, GROUPS, PARTS, lines, masked, matches, sections, spoken, wanted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("12 tokens, 93.4 tok/s, eos, seed 7", "12 tokens, <time> tok/s, eos, seed 7"),
        (
            '{"id": "cmpl-0123456789abcdef", "created": 1795775445, "seed": 7}',
            '{"id": "cmpl-<id>", "created": <time>, "seed": 7}',
        ),
        ('"timings": {\n "prefill": 0.1,\n "decode": 2\n}, "n": 1', '"timings": <times>, "n": 1'),
        ("1  2026-11-27 10:22  tiny", "1  <date>  tiny"),
        ("/tmp/a/b/x and /tmp/a/x in gencli 0.1.0", "<tree>/x and <tmp>/x in gencli <version>"),
        ('{"row": 0, "check": "0000"}', '{"row": 0, "check": "<wrong>"}'),
        ('"logprob": -1.25, "p": 0.5, "max_time": 3', '"logprob": -1.25, "p": 0.5, "max_time": 3'),
    ],
)
def test_only_what_is_volatile_is_masked(text, shown):
    places = [("/tmp/a", "<tmp>"), ("/tmp/a/b", "<tree>"), ("0.1.0", "<version>")]
    assert masked(text, places) == shown


def test_the_pieces_of_a_stream_do_not_matter():
    def stream(*pieces):
        events = [f'data: {{"choices": [{{"index": 0, "text": "{piece}"}}]}}\n\n' for piece in pieces]
        return "".join([": ping\n\n", *events, "data: [DONE]\n\n"])

    assert spoken(stream("a", "bc")) == spoken(stream("ab", "c")) != spoken(stream("ab", "d"))


def test_the_table_names_items_and_patterns():
    rows = ("item (a name) | commit | why", "--- | --- | ---", "`help/run` | abc | x", "server/* | d | y")
    page = "# Head\n\n" + "".join(f"| {row} |\n" for row in rows)
    assert wanted(page) == ["help/run", "server/*"]
    assert matches("help/run", "help/run")
    assert matches("*/text-*", "server/open/text-stop")
    assert not matches("help/run", "help/run2")
    assert not matches("server/*", "batch/server/x")


def test_every_part_is_collected_once_and_every_item_has_its_own_name():
    assert sorted(part for group in GROUPS for part in group) == sorted(PARTS)
    for title, table in sections(CASES.read_text(encoding="utf-8")).items():
        if not title.startswith("file "):
            names = [name for name, _ in lines(table)]
            assert len(names) == len({*names}), title


def test_the_base_is_a_commit():
    assert re.fullmatch("[0-9a-f]{40}\n", Path(BASE).read_text(encoding="utf-8"))
