"""What a batch needs the chat template for, and what is said where nothing reaches it."""

import json

import pytest

TOOLS = [{"name": "beep", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]
HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def tools(bench):
    path = bench.folder / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return "--tools", path, "--tool-choice", "required"


def test_tools_of_which_no_row_tells_the_model_are_refused_before_it_is_loaded(bench, tools):
    bench.write([{"prompt": "hi"}, {"prompt": "yo"}, "{"])
    refused = bench.call(bench.input, "--model", "no/such/model", *tools)
    assert (refused.code, refused.out) == (2, "")
    assert "--tools is told to the chat template, which no row uses" in refused.err
    assert "--chat" in refused.err


def test_tools_that_some_row_tells_of_are_enforced(bench, tools):
    cases = [
        ({"prompt": "hi"}, ["--chat"]), (HI, []), ({"prompt": "hi", "chat": True}, []),
        ({"prompt": "Do beep."}, []),
    ]  # fmt: skip
    for row, flags in cases:
        bench.write([{"prompt": "yo"}, row])
        done = bench.call(bench.input, "--model", "fake", "--max-tokens", "90", "--seed", "1", *tools, *flags)
        assert done.code in (0, 7), done.err
        assert '"beep"' in done.out, row
