"""The command that makes a traced text again."""

from gencli.explain.page.html_pages import command
from gencli.explain.trace_file import TracedText


def test_there_is_no_command_where_the_trace_has_too_little():
    head = {"run": "2", "sample": 0, "model": "tiny", "prompt": "b", "draw": "gumbel", "seed": 1, "chain": []}
    text = TracedText(head, (), "eos")
    assert command(text, [text]) == ""  # the noise of a second prompt comes behind a first
    for chain in ([{"grammar": {}}], [{"no_such": {}}], "top_k", [3]):
        text = TracedText({**head, "run": "1", "chain": chain}, (), "eos")
        assert command(text, [text]) == ""
    text = TracedText({**head, "run": "1"}, (), "eos")
    assert command(text, [text]).endswith(" -- b")
