"""Numbers and texts of records as they are shown."""

from gencli.cli.token_views import one_token, probability, quoted
from gencli.explain.token_levels import level


def test_numbers_and_texts_are_short_and_plain():
    for p, shown in [
        (1.0, "1.000"), (0.372, ".372"), (0.00042, ".0004"), (2e-5, "2e-05"), (0.0, "0"), (None, "-"),
    ]:  # fmt: skip
        assert probability(p) == shown, p

    assert quoted(' a\n"') == '" a\\n\\""'
    assert quoted("\x1b[1m") == '"\\x1b[1m"'
    assert len(quoted("x" * 100)) == 26

    assert [level("probability", p) for p in (0.9, 0.5, 0.3, 0.05, 0.001, None)] == [0, 0, 1, 2, 3, 3]


def record(**stage):
    """A record of one stage."""
    place = {"p": 0.5, "rank": 1, "logit": 0.0, "entropy": 1.0, "top": [[1, "x", 0.5]], "others": 0.5}
    usual = {"name": "dry", "params": "dry=1", "acted": True, "alive": [9, 9], "mass_kept": 1.0}
    lists = {"removed": [], "changed": [], "note": "", "why_not": ""}
    draw = {"kind": "gumbel", "margin": None, "runner_up": None}
    token = {"pos": 0, "id": 1, "text": "x", "surprise": 1.0, "decided_by": [], "forgone": None, "draw": draw}
    whole = {**place, "alive": 9}
    return {**token, "raw": whole, "final": whole, "stages": [{**usual, **place, **lists, **stage}]}


def test_what_a_stage_says_of_itself_is_shown_on_one_line():
    for stage, shown in [
        ({"changed": [[1, " sea", 4.04, 3.68]], "note": "seen 2x"}, '" sea" 4.04 -> 3.68 (seen 2x)'),
        ({"changed": [[1, " sea", 4.04, 3.68]]}, '" sea" 4.04 -> 3.68'),
        ({"note": "mu 10.00 bits"}, "mu 10.00 bits"),
        ({"acted": False, "why_not": "no tail repeats"}, "no tail repeats"),
        ({"acted": False, "note": "rolled 0.72", "why_not": "too high"}, "rolled 0.72, too high"),
        ({"acted": False}, "changed nothing"),
        ({"note": 'repeats "a\nb\x1b[2J\u202e"'}, 'repeats "a\\nb\\x1b[2J\\u202e"'),
    ]:
        line = next(line for line in one_token(record(**stage)).splitlines() if line.startswith("dry"))
        assert line.endswith(f"  {shown}"), stage
