"""gencli run --trace FILE, and gencli explain FILE."""

from tests.cli.commands.test_explain import trace


def test_what_the_trace_does_not_have_is_refused(gencli, trace):
    for words, said in [
        (("--at", "99"), "--at is 99, but the text has 20 tokens"),
        (("--decided-by", "top_p"), "has no stage 'top_p'"),
        (("--at", "1", "--decided-by", "top_k"), "--at and --decided-by do not go together"),
        (("--run", "7"), "no such text"),
        (("--format", "xml"), "--format: 'xml' is not one of text, jsonl"),
        (("--keys",), "--keys needs a terminal"),
        (("--keys", "--at", "99"), "--at is 99"),
        (("--keys", "--decided-by", "top_k"), "--keys and --decided-by are views"),
        (("--keys", "--live"), "--keys and --live are views"),
        (("--live", "--at", "1"), "--live and --at are views"),
        (("--live", "--format", "jsonl"), "--live and --format are views"),
    ]:
        found = gencli("explain", trace, *words)
        assert (found.code, found.out) == (2, ""), words
        assert said in found.err, words
