"""What Tab offers in a chat."""

from gencli.chat.chat_state import Conversation
from gencli.chat.slash_commands import COMMANDS, KEYS, complete, run_command, same_again


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
