"""The tags of a reasoning budget come from the options, else from the chat template."""

import json

import pytest

from gencli.config.job import make_job
from gencli.config.settings import resolve
from gencli.errors import UsageError


def tags(**values):
    settings = resolve(("flag", {"model": "fake", **values}))
    budget = make_job(settings).assembly.chain.get("reasoning_budget")
    return budget.start, budget.end


def test_the_tags_are_those_of_the_options_else_of_the_template_else_the_usual_ones(tmp_path):
    assert tags(reasoning_budget=5) == ("<think>", "</think>")

    found = tags(reasoning_budget=5, constrain_after="[/THINK]", regex="a+")
    assert found == ("[THINK]", "[/THINK]")

    stage = 'reasoning_budget:tokens=5,end="</thought>"'
    assert tags(stage=[stage]) == ("<thought>", "</thought>")

    (tmp_path / "config.json").write_text("{}")
    template = "{{ messages }}<seed:think>{{ thought }}</seed:think>"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert tags(reasoning_budget=5, model=str(tmp_path)) == ("<seed:think>", "</seed:think>")


def test_what_could_not_act_is_refused():
    for values, message in [
        ({"reasoning_message": "x"}, "reasoning_message` is given, but there is no budget"),
        ({"reasoning_budget": 5, "constrain_after": "FINAL:", "regex": "a"}, "other half is not known"),
    ]:
        with pytest.raises(UsageError, match=message):
            tags(**values)
