"""Outside of a call or tag the text is free: up to the last token it is the text without tools."""

from tests.slow.server.test_completions import GREEDY, check_free_text

DRAWN = {"temperature": 0.8, "top_p": 0.9, "seed": 3}


def test_a_text_without_a_call_is_the_text_without_tools_in_every_length(tiny):
    check_free_text(tiny, GREEDY, (2, 4, 5))
    check_free_text(tiny, DRAWN, (1, 2, 3, 4, 5, 12))
