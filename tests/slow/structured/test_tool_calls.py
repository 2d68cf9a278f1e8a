"""`--tools`: calls are enforced alike, read back, and read from a text in pieces, however it is cut."""

import json
import random
from itertools import pairwise

from gencli.structured.tool_calls import ToolCall, parse_calls
from tests.structured.backends import all_accept
from tests.structured.test_tool_calls import EMPTY, FORMS, NESTED, ROME, TWO, WRITE, plan, read

BAD = '"weather", "arguments": {"n": 2}'


def test_calls_are_enforced_alike_and_read_back():
    for name in WRITE:
        for choice in ["auto", "required", "weather"]:
            tools, write = plan(name, choice), WRITE[name]
            assert tools.plan.check.form.name == name, (name, choice)
            assert (tools.notice == "") == (name != "generic"), (name, choice)
            backends = all_accept(tools.plan)
            assert len(backends) == 2, (name, choice)
            is_many = choice != "weather" and tools.plan.check.form.is_parallel
            expected = {
                write(ROME): True,
                write(TWO): choice != "weather",
                write(ROME, TWO): is_many,
                write(BAD): False,
                write(ROME)[:-1]: False,
                "": choice == "auto",
                "I cannot.": choice == "auto",
            }
            for text, is_right in expected.items():
                assert [accept(text) for accept in backends] == [is_right, is_right], text
                assert (not tools.plan.check.faults(text)) == is_right, text
            assert tools.plan.check.calls(write(ROME)) == (ToolCall("weather", {"city": "Rome"}),), (
                name,
                choice,
            )


def splits(text):
    """Each cut in two, single characters, and cuts at random."""
    yield from ([text[:at], text[at:]] for at in range(len(text) + 1))
    yield list(text)
    draw = random.Random(5)
    for _ in range(50):
        places = sorted(draw.choices(range(len(text) + 1), k=draw.randint(2, 12)))
        yield [text[a:b] for a, b in pairwise([0, *places, len(text)])]


def outputs(name):
    """Texts of a format, and whether each has calls alone."""
    write, form = WRITE[name], FORMS[name]
    yield write(NESTED), True
    yield "I will look.\n\n" + write(NESTED), False
    yield "No call: { <tool_ [TOOL { \n", False
    if form.is_parallel:
        yield write(NESTED, EMPTY, NESTED), True
    if name == "hermes":
        yield f'Well <tool>, {write(EMPTY)} and {{"this"}} {write(NESTED)} end\n', False


def test_every_cut_gives_the_calls_of_the_whole_text():
    for name in WRITE:
        form = FORMS[name]
        for text, has_only_calls in outputs(name):
            expected = parse_calls(text, form)[0]
            whole = read(form, [text], has_only_calls=has_only_calls)
            free = "" if has_only_calls else text.partition(form.trigger)[0]
            assert whole[0] == (free.rstrip() if expected else text), name
            assert [(each, json.loads(written)) for each, written in whole[1]] == [
                (call.name, call.arguments) for call in expected
            ], name
            assert all(written in text for _, written in whole[1]), name  # as the model wrote it
            for pieces in splits(text):
                assert read(form, pieces, has_only_calls=has_only_calls) == whole, pieces
