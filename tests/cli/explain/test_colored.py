"""gencli run --color: the text with colours is the text, and options that leave no colour are named."""

import pytest

pytest.importorskip("pty")


def test_where_there_are_no_colours_a_notice_says_so(run, tmp_path):
    for words, reason in [
        ((), "stdout is no terminal"),
        (("--format", "jsonl"), "--format jsonl writes records"),
        (("--output", "FILE"), "the result goes to a file"),
    ]:
        words = [tmp_path / "out" if one == "FILE" else one for one in words]
        found = run("--max-tokens", "3", "--color", "rank", "hi", *words)
        assert found.code == 0, words
        assert f"Notice: --color has no effect: {reason}." in found.err, words


def test_what_cannot_be_coloured_is_refused_by_name(run):
    for words in [
        ("--color", "rank", "--finish-open", "--json"),
        ("--color", "rank", "--parsed", "--json"),
        ("--color", "decided", "--beams", "2"),
        ("--color", "entropy", "--best-of", "2", "--temperature", "1"),
        ("--color", "rank", "--max-tokens", "0", "--prompt-logprobs", "1"),
    ]:
        found = run("hi", *words)
        assert found.code == 2, words
        assert "--color" in found.err, words
        assert words[2] in found.err, words
