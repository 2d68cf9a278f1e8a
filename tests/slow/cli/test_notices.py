"""A notice says what a person has to know, once."""

import pytest

CALENDAR = '[{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]'


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(CALENDAR)
    return path


def test_tools_that_the_prompt_does_not_name_are_told(run, tools):
    said = "The prompt does not name the tools"
    short = ("--tools", tools, "--max-tokens", "3", "--seed", "1")
    assert said in run(*short, "hi").err
    assert said not in run(*short, "Call look_up.").err
    assert said not in run(*short, "--chat", "hi").err
    assert said not in run(*short, "--quiet", "hi").err
