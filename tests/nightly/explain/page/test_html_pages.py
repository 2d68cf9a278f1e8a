"""Pages of all kinds in a browser: what they show, what the keyboard reaches, and that nothing else runs."""

import shlex

from gencli.explain.page import command


def test_the_command_makes_the_same_records(traced):
    for words in [
        ("--temperature", "1.3", "--top-k", "4", "-n", "2"),
        ("--temperature", "2", "--ban", "the cat", "--logit-bias", "5=2.5", "--temperature-last"),
        ("--dry-multiplier", ".8", "--dry-breaker", "\n", "--dry-breaker", 'a"b', "--sampler", "multinomial"),
        ("--temperature", "0"),
    ]:
        texts = traced(*words, "--max-tokens", "12", "the cat", "a 'dog' | $x\nnew")
        text = texts[-1]
        program, run, *rest = shlex.split(command(text, texts))
        assert (program, run) == ("gencli", "run"), words
        again = traced(*rest)
        assert next(one.records for one in again if one.key == text.key) == text.records, words
