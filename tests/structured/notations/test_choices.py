"""`--choice`: a list of texts."""

import json
import re

from gencli.errors import ConfigError
from gencli.structured.text_plans import plan_choices
from tests.helpers.refusal import refusal


def test_choices_are_a_list_for_the_plain_back_end():
    constraint = plan_choices(["yes", "yes, but", "né"]).variants[0].constraint
    assert (constraint.kind, constraint.backend) == ("choice", "trie")
    assert json.loads(constraint.text) == ["yes", "yes, but", "né"]


def test_choices_that_cannot_be_are_refused():
    for choices, message in [
        ([], "There is no choice"),
        (["a", ""], "Choice 2 is empty"),
        (["a", "b", "a"], "Choice 3 is 'a', like an earlier one"),
        (["a", 1], "Choice 2 is 1, which is no text"),
        (["\udc80"], "not valid UTF-8"),
    ]:
        assert re.search(message, refusal(ConfigError, plan_choices, choices)), choices


def test_only_whole_choices_pass_the_check():
    check = plan_choices(["yes", "no"]).check
    assert check.faults("yes") == ()
    assert check.faults("ye") == ("'ye' is none of the 2 choices.",)
