"""A trace has a line for each token; what is read back is what was written, and no other file is a trace."""

import pytest

from gencli.errors import GenerationError
from gencli.explain.trace_file import read_trace
from tests.explain.test_trace_file import lines


def test_another_file_is_refused_with_the_line(lines):
    for change, said in [
        (lambda lines: ["{"], "Line 1 is no JSON"),
        (lambda lines: ["[]"], "Line 1 is no object"),
        (lambda lines: ['{"v": 2, "kind": "text"}'], "no line of a trace of version 1"),
        (lambda lines: lines[1:], "belongs to no text that has begun"),
        (lambda lines: [lines[0], lines[1].replace('"raw"', '"row"')], "no record of a token: 'raw'"),
        (lambda lines: [lines[0], lines[1].replace('"stages": [', '"stages": [3, ')], "no record of a token"),
        (lambda lines: ["[" * 100_000], "Line 1 is no JSON"),
    ]:
        own = [line for line in lines if '"run": "b"' in line]
        with pytest.raises(GenerationError, match=said):
            read_trace(change(own))
