"""The walk on a terminal: keys come from it, and it is as before in the end."""

from gencli.cli.trace_views import TraceWalk
from gencli.cli.walk_screen import walk_through
from tests.cli.explain.records import record, text

TEXT = text(record(0), record(1, decided=["top_k"]))


def test_keys_lead_until_one_leaves():
    for keys, token in [("\x1b[Cq", 1), ("nq", 1), ("x\x03", 0), ("n\x04", 1)]:
        from prompt_toolkit.input import create_pipe_input
        from prompt_toolkit.output import DummyOutput

        with create_pipe_input() as source:
            source.send_text(keys)
            assert walk_through(TraceWalk((TEXT,)), source, DummyOutput()).token == token, keys
