"""The conversation is a value, and its turns decide prompts and draws."""

import pytest

from gencli.chat.chat_state import Conversation, draw_seed, prompt_ids
from gencli.errors import GenerationError, UsageError
from processors.rng import derive


def test_a_turn_draws_as_the_row_of_a_run_and_a_change_leaves_the_old_value():
    empty = Conversation(1)
    asked = empty.asked("Hi")
    answered = asked.answered("Hello.", "eos")
    assert (empty.turns, asked.is_waiting, answered.is_waiting) == ((), True, False)
    assert answered.undone() == empty
    assert answered.edited("Ho").messages == [{"role": "user", "content": "Ho"}]
    assert answered.again().is_waiting

    for change in ["undone", "again"]:
        with pytest.raises(UsageError, match="no turn yet"):
            getattr(Conversation(1), change)()

    one = Conversation(7).asked("Hi")
    two = one.answered("Hello.", "eos").asked("Who?")
    assert [draw_seed(one), draw_seed(two)] == [derive(7, 0), derive(7, 1)]


def test_another_attempt_draws_anew_and_going_back_draws_as_before():
    one = Conversation(7).asked("Hi").answered("Hello.", "eos")
    seeds = [draw_seed(one), draw_seed(one.again()), draw_seed(one.again().again())]
    assert len(set(seeds)) == 3
    assert draw_seed(one.again().undone().asked("Hi")) == seeds[0]


def test_turns_are_the_prompt(tokenizer):
    talk = Conversation(1, "Be kind.").asked("Hi").answered("Hel", "interrupted").asked("Go on")
    ids = prompt_ids(talk, tokenizer, is_raw=False, context=1024)
    assert bytes(ids) == b"<bos>[system]Be kind.[user]Hi[assistant]Hel[user]Go on"

    talk = Conversation(1).asked("Once").answered(" upon", "length").asked("a time")
    assert bytes(prompt_ids(talk, tokenizer, is_raw=True, context=1024)[1:]) == b"Once upon\na time"


def test_a_full_context_names_the_ways_out(tokenizer):
    with pytest.raises(GenerationError, match="has 31 tokens, but the model's context is 31") as caught:
        prompt_ids(Conversation(1).asked("x" * 20), tokenizer, is_raw=False, context=31)
    assert "/undo" in caught.value.hint
    assert "/clear" in caught.value.hint
