"""Calls read from a text in pieces are those of the whole text, however it is cut."""

import random
from itertools import pairwise

from gencli.structured.tool_calls import CallPart, CallStream, detect_format
from tests.structured.calls.test_tools import TEMPLATES, WRITE

ARGUMENTS = '{"a": "q\\"}, \\\\", "b": [{}, {"name": "x"}], "é": "\\ud83d\\ude00 😀 </tool_call>"}'


NESTED = f'"deep.f-1", "arguments": {ARGUMENTS}'


EMPTY = '"g", "arguments": {}'


FORMS = {name: detect_format(template)[0] for name, template in TEMPLATES.items()}


def read(form, pieces, **options):
    """The free text, and the name and arguments of each call."""
    stream = CallStream(form, **options)
    found = [*map(stream.feed, pieces), stream.finish()]
    calls = []
    for part in (part for one in found for part in one.calls):
        if part.name:
            assert part == CallPart(len(calls), part.name)
            calls.append((part.name, ""))
        else:
            assert part.arguments
            assert part.number == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + part.arguments)
    assert stream.count == len(calls)
    return "".join(one.text for one in found), calls


def test_a_call_that_is_cut_has_the_arguments_so_far():
    for name in WRITE:
        form, text = FORMS[name], WRITE[name](NESTED)
        for length in range(len(text)):
            free, calls = read(form, list(text[:length]), has_only_calls=True)
            if calls:
                assert (free, calls[0][0]) == ("", "deep.f-1"), name
                assert ARGUMENTS.startswith(calls[0][1]), name
            else:  # before its name it is neither a call nor text
                assert free == "", name


def test_white_space_and_the_order_of_members_are_free_in_plain_json():
    text = ' {"arguments" :{"a":1 } , "name": "f"} '
    assert read(FORMS["generic"], list(text), has_only_calls=True) == ("", [("f", '{"a":1 }')])


def test_only_the_first_call_counts_where_one_is_asked_for():
    text = WRITE["hermes"](EMPTY, NESTED)
    for pieces in ([text], list(text)):
        assert read(FORMS["hermes"], pieces, has_one=True) == ("", [("g", "{}")])


def test_what_is_no_call_is_text():
    for text in ["<tool_call> x", '<tool_call>{"n": 1}', '<tool_call>{"name": 5}']:
        for pieces in ([text], list(text), [text, " more"]):
            assert read(FORMS["hermes"], pieces) == ("".join(pieces), []), text


def test_any_text_is_read_alike_however_it_is_cut():
    draw = random.Random(1)
    words = [*'{}[]":,\\ \nx', "<tool_call>", '"name"', '"arguments"', '{"name": "', '", "arguments": ']
    for _ in range(500):
        text = "".join(draw.choices([*words, "[TOOL_CALLS]"], k=draw.randint(1, 25)))
        form, options = draw.choice([*FORMS.values()]), {"has_only_calls": draw.random() < 0.5}
        places = [0, *sorted(draw.choices(range(len(text) + 1), k=4)), len(text)]
        pieces = [text[a:b] for a, b in pairwise(places)]
        assert read(form, pieces, **options) == read(form, [text], **options), pieces
