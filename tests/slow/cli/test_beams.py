"""Searches and choices among samples on the command line: results, refusals, notices, batches."""

from tests.cli.test_beams import PROMPT


def test_streaming_is_said_to_wait(run):
    for flag in ("--beams", "--best-of"):
        assert f"With {flag} text cannot be streamed" in run(PROMPT, flag, 2, "--stream").err
