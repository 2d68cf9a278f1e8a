"""Lines of traces: written, read, checked and followed."""

import json

from gencli.cli.token_views import one_token, whole_text
from gencli.errors import GenerationError
from gencli.explain.page import page
from gencli.explain.trace_file import read_trace
from tests.slow.explain.test_trace_file import ABSENT, changed, full


def paths(value, before=()):
    """All places of a JSON value."""
    yield from [before] if before else []
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from paths(value[key], (*before, key))


def test_readers_show_whatever_is_not_refused(full):
    begin, record = full
    hostile = (ABSENT, None, True, -1, 0, 0.5, 1e308, 10**400, "", "\x1b", [], [[]], {}, {"a": []})
    refused = 0
    for path in paths(record):
        for value in hostile:
            other = changed(record, path, value)
            try:
                (text,) = read_trace([json.dumps(begin), json.dumps(other)])
            except GenerationError:
                refused += 1
                continue
            assert one_token(text.records[0], of=1) + whole_text(text.records) + page([text])
    assert refused > 1000
