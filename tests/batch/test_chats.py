"""What a batch needs the chat template for, and what is said where nothing reaches it."""

import json

import pytest

TOOLS = [{"name": "beep", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]


@pytest.fixture
def tools(bench):
    path = bench.folder / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return "--tools", path, "--tool-choice", "required"


def test_tools_of_which_no_row_tells_the_model_are_refused_before_it_is_loaded(bench, tools):
    bench.write([{"prompt": "hi"}, {"prompt": "yo"}, "{"])
    refused = bench.call(bench.input, "--model", "no/such/model", *tools)
    assert (refused.code, refused.out) == (2, "")
    assert "--tools reaches the model in the chat template, which no row uses" in refused.err
    assert "--chat" in refused.err
