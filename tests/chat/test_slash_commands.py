"""Each command without a terminal, and what Tab offers."""

import pytest

from gencli.chat.chat_state import Conversation, open_chat
from gencli.chat.slash_commands import COMMANDS, KEYS, complete, run_command, same_again
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


def test_tab_offers_what_may_follow(chat, monkeypatch, tmp_path):
    for line, word, some in [
        ("/pre", "/pre", ["/preset"]),
        ("/", "/", [f"/{name}" for name in COMMANDS]),
        ("/set penalty", "penalty", ["penalty-scope", "penalty-window"]),
        ("/set sampler g", "g", ["gumbel", "greedy"]),
        ("/set ignore-eos ", "", ["on", "off", "default"]),
        ("/set stage top_k:t", "top_k:t", ["top_k:ties="]),
        ("/set nothing x", "x", []),
        ("/show mod", "mod", ["model"]),
        ("/show ignore", "ignore", ["ignore-eos"]),
        ("/preset brai", "brai", ["brainstorm"]),
        ("/system d", "d", ["default"]),
        ("/schema o", "o", ["off"]),
        ("/color r", "r", ["rank"]),
        ("/undo x", "", []),
        ("a turn", "", []),
        ("//help", "", []),
    ]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            assert complete(line, chat) == (word, some), line


def test_tab_offers_files_for_the_commands_that_take_them(chat, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "b.txt", "c.yaml", ".hidden.json", "folder/d.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    assert complete("/load ", chat)[1] == ["a.json", "folder/"]
    assert complete("/load folder/", chat)[1] == ["folder/d.json"]
    assert complete("/load .h", chat)[1] == [".hidden.json"]
    assert complete(f"/load {tmp_path}/a", chat)[1] == [f"{tmp_path}/a.json"]
    assert complete("/schema ", chat)[1] == ["off", "a.json", "c.yaml", "folder/"]
    assert complete("/preset ./", chat)[1] == ["./c.yaml", "./folder/"]
    assert complete("/load /nowhere/", chat)[1] == []


def test_history_shows_what_was_said(chat, scene):
    assert run_command("/history", chat, scene).text.splitlines() == ["[1] Hi", "Hello.", "[2] Who?", "Me."]
    short = run_command("/history 1", chat, scene).text.splitlines()
    assert short == ["(1 earlier turn; /history shows all.)", "[2] Who?", "Me."]
    kind = chat.with_conversation(chat.conversation.asked("Go on").answered("Well", "interrupted"))
    kind = run_command("/system Be kind.", kind, scene).chat
    lines = run_command("/history", kind, scene).text.splitlines()
    assert (lines[0], lines[-1]) == ("[system] Be kind.", "Well [interrupted]")
    assert (
        run_command("/history", chat.with_conversation(Conversation(1)), scene).text
        == "There is no turn yet."
    )


def test_help_names_the_keys(chat, scene):
    assert run_command("/help", chat, scene).text.endswith(KEYS)


def test_an_attempt_that_gives_the_same_answer_is_told():
    before = Conversation(1).asked("Hi").answered("Hello.", "eos")
    again = before.again()
    assert "The same answer again" in same_again(before, again.answered("Hello.", "eos"))
    assert same_again(before, again.answered("Bye.", "eos")) == ""
    assert same_again(before, before.asked("Hi").answered("Hello.", "eos")) == ""
    assert same_again(Conversation(1), before) == ""
