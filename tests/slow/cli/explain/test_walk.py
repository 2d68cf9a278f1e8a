"""A walk by keys, without a terminal: where a key leads, and what is drawn there."""

from rich.cells import cell_len

from gencli.cli.navigation_pages import draw
from gencli.cli.trace_views import TraceWalk
from tests.cli.explain.records import record, text
from tests.cli.explain.test_walk import plain


def test_lines_fit_any_screen_and_have_the_token():
    for panel in ["distribution", "alternatives", "help"]:
        for height in [1, 2, 5, 12, 60]:
            for width in [1, 7, 40, 200]:
                wide = text(*(record(at, "\u4e2d\u6587" * 3) for at in range(300)))
                lines = plain(TraceWalk((wide,), token=150, panel=panel), width, height)
                assert len(lines) <= height, (panel, height, width)
                assert all(cell_len(line) <= width for line in lines), (panel, height, width)

    long = text(*(record(at, f"<{at}>") for at in range(5000)))
    for token in (0, 1, 77, 2500, 4999):
        found = [part for line in draw(TraceWalk((long,), token=token), 60, 24) for part in line]
        assert ("current", f"<{token}>") in found
