"""Each command, without a terminal."""

import pytest

from gencli.chat.chat_state import open_chat
from gencli.chat.slash_commands import COMMANDS, run_command
from gencli.core.events import Finish, Timings
from gencli.errors import UsageError


def test_help_lists_every_command_and_quit_leaves(chat, scene):
    text = run_command("/help", chat, scene).text
    assert [name for name in COMMANDS if f"/{name}" not in text] == []

    assert run_command("/quit", chat, scene).is_over


def test_what_cannot_be_done_is_said(chat, scene):
    for line, said, hint in [
        ("/hepl", "/hepl", "/help"),
        ("/undo 3", "takes no argument", ""),
        ("/set", "needs a name", ""),
        ("/set top_q 1", "top_q", "top-p"),
        ("/set seed 1", "own command", "/seed"),
        ("/set model x", "cannot set", ""),
        ("/set top_p 7", "`top_p` is 7", ""),
        ("/set temperature_last maybe", "on or off", ""),
        ("/seed x", "whole number", ""),
        ("/why x", "number of a token", ""),
        ("/why", "no answer", ""),
        ("/color blue", "'blue' is not one of off", ""),
        ("/save", "needs a file", ""),
        ("/set preset story", "own command", "/preset"),
        ("/show top_q", "top_q", "top-p"),
        ("/set penalty-window 9", "no penalty is on", ""),
    ]:
        with pytest.raises(UsageError) as caught:
            run_command(line, chat, scene)
        assert said in caught.value.message, line
        assert hint in caught.value.hint, line


def test_set_holds_from_the_next_answer_and_default_undoes_flags_too(chat, scene):
    warm = run_command("/set t 0.5", chat, scene).chat
    assert warm.job.chain.to_list() != chat.job.chain.to_list()
    assert warm.settings.origin("temperature") == "/set"
    bare = run_command("/set top-p default", warm, scene).chat
    assert bare.job.chain.get("top_p").p == 0.95  # the default of a chat
    assert chat.settings["top_p"] == 0.9

    stops = run_command(r"/set stop \n\n", chat, scene).chat
    assert stops.job.stops.strings == ("\n\n",)
    assert run_command("/set include-stop on", stops, scene).chat.job.stops.include

    with pytest.raises(UsageError, match="nothing to stop at"):
        run_command("/set include-stop on", chat, scene)


def test_show_names_values_and_origins_and_colours_are_set(chat, scene):
    colored = run_command("/color entropy", chat, scene).chat
    assert colored.settings["color"] == "entropy"
    assert run_command("/color", colored, scene).text == "Answers are coloured by: entropy."
    assert run_command("/color off", colored, scene).chat.settings["color"] == "off"
    assert "color" not in colored.typed

    chat = run_command("/set min-p 0.1", chat, scene).chat
    rows = run_command("/show", chat, scene).rows
    assert {("top-p", "0.9", "flag"), ("min-p", "0.1", "/set")} < {*rows}
    assert run_command("/show min-p", chat, scene).rows == (("min-p", "0.1", "/set"),)
    assert run_command("/show top-k", chat, scene).rows == (("top-k", "40", "default of chat"),)
    assert run_command("/chain", chat, scene).text == "the chain"


def test_undo_edit_regen_and_clear_change_the_turns(chat, scene):
    said = [turn.user for turn in run_command("/undo", chat, scene).chat.conversation.turns]
    assert said == ["Hi"]
    assert run_command("/edit Why?", chat, scene).chat.conversation.turns[-1].user == "Why?"
    again = run_command("/regen", chat, scene)
    assert again.chat.conversation.is_waiting
    assert "(seed, turn, 1)" in again.text
    assert run_command("/clear", chat, scene).chat.conversation.turns == ()

    reply = run_command("/edit", chat, scene)
    assert (reply.draft, reply.is_edit, len(reply.chat.conversation.turns)) == ("Who?", True, 2)


def test_regen_refuses_only_what_gives_the_same_answer(chat, scene):
    greedy = run_command("/set temperature 0", chat.with_value("top_p", None), scene).chat

    def answered(by, reason="eos"):
        conversation = greedy.conversation.undone().asked("Who?").answered("Me.", reason, by.job)
        return greedy.with_conversation(conversation)

    for other in (greedy, answered(chat), answered(greedy, "interrupted")):
        assert run_command("/regen", other, scene).chat.conversation.is_waiting
    with pytest.raises(UsageError, match="same answer"):
        run_command("/regen", answered(greedy), scene)
    longer = run_command("/set max-tokens 900", answered(greedy), scene).chat
    assert run_command("/regen", longer, scene).chat.conversation.is_waiting


def test_system_seed_tokens_and_stats(chat, scene):
    assert "no system" in run_command("/system", chat, scene).text
    kind = run_command("/system Be kind.", chat, scene).chat
    assert kind.conversation.messages[0] == {"role": "system", "content": "Be kind."}
    assert run_command("/system default", kind, scene).chat.conversation == chat.conversation
    with pytest.raises(UsageError, match="raw"):
        run_command("/system x", open_chat({"raw": True}), scene)

    assert run_command("/seed 5", chat, scene).chat.conversation.seed == 5
    used = len("<bos>[user]Hi[assistant]Hello.[user]Who?[assistant]Me.")
    assert f"{used} of 1024" in run_command("/tokens", chat, scene).text
    end = Finish("chat", 0, "x", "eos", None, None, 30, 5, Timings(0.1, 2.0, 0.1), 20)
    from dataclasses import replace

    row = run_command("/stats", chat, replace(scene, answers=(end,))).text.splitlines()[1]
    assert row.split() == ["1", "30", "20", "10", "5", "2.0", "eos"]
