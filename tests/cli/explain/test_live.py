"""gencli explain --live: a trace that grows is shown as it grows."""

import json

import pytest

from gencli.cli.render import Sink
from gencli.cli.trace_views import show_live
from gencli.errors import GenerationError
from tests.cli.explain.records import record


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
