"""`--tools`: calls in the model's own form, enforced by either back end, read back and checked."""

from gencli.structured.tool_calls import ToolCall
from tests.structured.backends import all_accept
from tests.structured.calls.test_tools import ROME, TWO, WRITE, plan

BAD = '"weather", "arguments": {"n": 2}'


def test_calls_are_enforced_alike_and_read_back():
    for name in WRITE:
        for choice in ["auto", "required", "weather"]:
            tools, write = plan(name, choice), WRITE[name]
            assert tools.form.name == name, (name, choice)
            assert (tools.notice == "") == (name != "generic"), (name, choice)
            backends = all_accept(tools.plan)
            assert len(backends) == 2, (name, choice)
            is_many = choice != "weather" and tools.form.is_parallel
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
            assert tools.check.calls(write(ROME)) == (ToolCall("weather", {"city": "Rome"}),), (name, choice)
