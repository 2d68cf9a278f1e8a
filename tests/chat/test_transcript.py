"""A chat that is saved and loaded is the same chat."""

import json

import pytest

from gencli.chat.chat_state import open_chat
from gencli.chat.slash_commands import run_command
from gencli.errors import ConfigError, UsageError


def test_loading_gives_conversation_seed_and_settings_back(chat, scene, tmp_path):
    again = chat.with_conversation(chat.conversation.again().answered("You.", "eos"))
    run_command(f"/save {tmp_path / 'a.json'}", again, scene)
    loaded = run_command(f"/load {tmp_path / 'a.json'}", open_chat({}), scene).chat
    assert loaded.conversation.turns[-1].attempt == 1
    assert loaded.conversation.again() == again.conversation.again()

    run_command(f"/save {tmp_path / 'a.json'}", chat, scene)
    document = json.loads((tmp_path / "a.json").read_text())
    assert (document["seed"], document["turn"], document["settings"]) == (7, 2, {"top_p": "0.9"})
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"] * 2

    path = tmp_path / "talk.json"
    chat = run_command("/system Be kind.", chat, scene).chat
    for line in (r"/set stop \n\n", "/set temperature-last on", "/set t 0.7", f"/save {path}"):
        chat = run_command(line, chat, scene).chat
    loaded = run_command(f"/load {path}", open_chat({}), scene).chat
    assert loaded.conversation == chat.conversation
    assert loaded.job.assembly.chain == chat.job.assembly.chain
    assert loaded.job.stops == chat.job.stops
    assert loaded.settings.origin("top_p") == f"transcript {path}"


@pytest.fixture
def saved(chat, scene, tmp_path):
    """The file of a chat with `--seed 7 --top-p 0.9` and `/set max-tokens 30`."""
    path = tmp_path / "saved.json"
    run_command(f"/save {path}", run_command("/set max-tokens 30", chat, scene).chat, scene)
    return path


def test_flags_and_set_stay_above_a_transcript_and_are_named(saved, scene):
    flags = {"top_p": "0.5", "top_k": "3", "seed": "1", "system": "Hm."}
    here = run_command("/set min-p 0.1", open_chat(flags), scene).chat
    reply = run_command(f"/load {saved}", here, scene)
    settings = reply.chat.settings
    assert {
        key: (settings[key], settings.origin(key)) for key in ("top_p", "top_k", "min_p", "max_tokens")
    } == {
        "top_p": (0.5, "flag"),
        "top_k": (3, "flag"),
        "min_p": (0.1, "/set"),
        "max_tokens": (30, f"transcript {saved}"),
    }
    assert "Flags and /set override its settings: top-p, top-k, min-p." in reply.text
    assert "The seed of the command line no longer applies" in reply.text
    assert "The system of the command line no longer applies" in reply.text
    assert reply.chat.conversation.seed == 7


def test_a_transcript_is_above_the_environment_and_replaced_by_the_next_one(
    saved, scene, monkeypatch, tmp_path
):
    monkeypatch.setenv("GENCLI_MAX_TOKENS", "8")
    run_command(f"/save {tmp_path / 'other.json'}", open_chat({"min_p": "0.3"}), scene)
    first = run_command(f"/load {saved}", open_chat({}), scene)
    assert (first.chat.settings["max_tokens"], "override its settings" in first.text) == (30, False)
    second = run_command(f"/load {tmp_path / 'other.json'}", first.chat, scene).chat
    assert [second.settings[key] for key in ("max_tokens", "top_p", "min_p")] == [8, 0.95, 0.3]


def test_load_shows_the_last_turns_and_names_another_model(saved, scene, chat, tmp_path):
    assert run_command(f"/load {saved}", open_chat({}), scene).text.splitlines()[-4:] == [
        "[1] Hi", "Hello.", "[2] Who?", "Me.",
    ]  # fmt: skip

    run_command(f"/save {tmp_path / 'a.json'}", chat, scene)
    other = open_chat({"model": "other"})
    story = open_chat({"preset": ["story"]})
    assert "are none; here: story" in run_command(f"/load {tmp_path / 'a.json'}", story, scene).text
    assert "The transcript's model is tiny" in run_command(f"/load {tmp_path / 'a.json'}", other, scene).text


def _document(settings):
    return f'{{"format": "gencli chat 1", "model": "m", "seed": 1, "settings": {settings}, "messages": []}}'


def test_a_file_that_is_no_transcript_is_named(chat, scene, tmp_path, saved):
    for text, said in [
        ("x", "is not JSON"),
        ("[]", "is not a transcript"),
        ('{"format": "gencli chat 1"}', "damaged"),
        (
            '{"format": "gencli chat 1", "model": "m", "seed": 1, "settings": {}, '
            '"messages": [{"role": "assistant", "content": "x"}]}',
            "roles",
        ),
        (_document('{"plugin": ["x.py"]}'), "no setting 'plugin'"),
        (_document('{"stop": "x"}'), "setting stop is 'x'"),
        (_document('{}, "schema": "file.json"'), "the schema is 'file.json'"),
        (_document('{"top_p": 0.9}'), "setting top_p is 0.9"),
    ]:
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(ConfigError, match=said) as caught:
            run_command(f"/load {path}", chat, scene)
        assert str(path) in caught.value.message, text

    with pytest.raises(UsageError, match="cannot be read"):
        run_command(f"/load {tmp_path / 'none.json'}", chat, scene)

    with pytest.raises(UsageError, match="`min_tokens` asks for 40 tokens, max_tokens .* allows 30"):
        run_command(f"/load {saved}", open_chat({"min_tokens": "40"}), scene)


def test_the_schema_of_answers_is_kept_whatever_file_it_came_from(chat, scene, tmp_path):
    schema = {"type": "integer", "minimum": 3}
    (tmp_path / "number.json").write_text(json.dumps(schema))
    chat = run_command(f"/schema {tmp_path / 'number.json'}", chat, scene).chat
    run_command(f"/save {tmp_path / 'a.json'}", chat, scene)
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == schema
    (tmp_path / "number.json").unlink()
    loaded = run_command(f"/load {tmp_path / 'a.json'}", open_chat({}), scene).chat
    assert loaded.job.structure.plan.schema == schema
    assert loaded.typed == chat.typed
    reply = run_command(f"/load {tmp_path / 'a.json'}", open_chat({"regex": "a"}), scene)
    assert (reply.chat.job.structure.kind, "override its settings: schema." in reply.text) == ("regex", True)
    run_command(f"/save {tmp_path / 'b.json'}", loaded, scene)
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


def test_answers_that_were_let_free_stay_free_and_other_structures_stay_as_they_are(scene, tmp_path):
    path = tmp_path / "a.json"
    regex = open_chat({"regex": "a"})
    run_command(f"/save {path}", regex, scene)
    assert "schema" not in json.loads(path.read_text())
    assert run_command(f"/load {path}", regex, scene).chat.job.structure.kind == "regex"
    run_command(f"/save {path}", run_command("/schema off", regex, scene).chat, scene)
    assert run_command(f"/load {path}", open_chat({}), scene).chat.job.structure is None
