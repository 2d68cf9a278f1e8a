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


def test_the_usual_tags_stand_where_nothing_else_is_known():
    assert tags(reasoning_budget=5) == ("<think>", "</think>")


def test_the_end_is_that_behind_which_the_result_begins():
    found = tags(reasoning_budget=5, constrain_after="[/THINK]", regex="a+")
    assert found == ("[THINK]", "[/THINK]")


def test_the_chat_template_names_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    template = "{{ messages }}<seed:think>{{ thought }}</seed:think>"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert tags(reasoning_budget=5, model=str(tmp_path)) == ("<seed:think>", "</seed:think>")


def test_one_tag_gives_the_other():
    stage = 'reasoning_budget:tokens=5,end="</thought>"'
    assert tags(stage=[stage]) == ("<thought>", "</thought>")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reasoning_message": "x"}, "reasoning_message` is given, but there is no budget"),
        ({"reasoning_budget": 5, "constrain_after": "FINAL:", "regex": "a"}, "other half is not known"),
    ],
)
def test_what_could_not_act_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        tags(**values)
