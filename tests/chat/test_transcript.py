"""A chat that is saved and loaded is the same chat."""

import json

import pytest

from gencli.chat.commands import obey
from gencli.chat.state import open_chat
from gencli.errors import ConfigError, UsageError


def test_loading_gives_conversation_seed_and_settings_back(chat, scene, tmp_path):
    path = tmp_path / "talk.json"
    chat = obey("/system Be kind.", chat, scene).chat
    for line in (r"/set stop \n\n", "/set temperature-last on", "/set t 0.7", f"/save {path}"):
        chat = obey(line, chat, scene).chat
    other = open_chat({"seed": "1", "min_p": "0.2"})
    loaded = obey(f"/load {path}", other, scene).chat
    assert loaded.conversation == chat.conversation
    assert loaded.job.assembly.chain == chat.job.assembly.chain
    assert loaded.job.stops == chat.job.stops
    assert loaded.settings.origin("top_p") == f"transcript {path}"


def test_the_number_of_a_further_attempt_is_kept(chat, scene, tmp_path):
    again = chat.with_conversation(chat.conversation.again().answered("You.", "eos"))
    obey(f"/save {tmp_path / 'a.json'}", again, scene)
    loaded = obey(f"/load {tmp_path / 'a.json'}", open_chat({}), scene).chat
    assert loaded.conversation.turns[-1].attempt == 1
    assert loaded.conversation.again() == again.conversation.again()


def test_the_document_is_plain_json(chat, scene, tmp_path):
    obey(f"/save {tmp_path / 'a.json'}", chat, scene)
    document = json.loads((tmp_path / "a.json").read_text())
    assert (document["seed"], document["turn"], document["settings"]) == (7, 2, {"top_p": "0.9"})
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"] * 2


def _document(settings):
    return f'{{"format": "gencli chat 1", "model": "m", "seed": 1, "settings": {settings}, "messages": []}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is not JSON"),
        ("[]", "is no transcript"),
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
    ],
)
def test_a_file_that_is_no_transcript_is_named(chat, scene, tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        obey(f"/load {path}", chat, scene)
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_is_named(chat, scene, tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        obey(f"/load {tmp_path / 'none.json'}", chat, scene)


def test_another_model_is_said(chat, scene, tmp_path):
    obey(f"/save {tmp_path / 'a.json'}", chat, scene)
    other = open_chat({"model": "other"})
    story = open_chat({"preset": ["story"]})
    assert "were none; here: story" in obey(f"/load {tmp_path / 'a.json'}", story, scene).text
    assert "spoken with tiny" in obey(f"/load {tmp_path / 'a.json'}", other, scene).text


def test_the_schema_of_answers_is_kept_whatever_file_it_came_from(chat, scene, tmp_path):
    schema = {"type": "integer", "minimum": 3}
    (tmp_path / "number.json").write_text(json.dumps(schema))
    chat = obey(f"/schema {tmp_path / 'number.json'}", chat, scene).chat
    obey(f"/save {tmp_path / 'a.json'}", chat, scene)
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == schema
    (tmp_path / "number.json").unlink()
    loaded = obey(f"/load {tmp_path / 'a.json'}", open_chat({"regex": "a"}), scene).chat
    assert loaded.job.structure.plan.schema == schema
    assert loaded.typed == chat.typed
    obey(f"/save {tmp_path / 'b.json'}", loaded, scene)
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


def test_answers_that_were_let_free_stay_free_and_other_structures_stay_as_they_are(scene, tmp_path):
    path = tmp_path / "a.json"
    regex = open_chat({"regex": "a"})
    obey(f"/save {path}", regex, scene)
    assert "schema" not in json.loads(path.read_text())
    assert obey(f"/load {path}", regex, scene).chat.job.structure.kind == "regex"
    obey(f"/save {path}", obey("/schema off", regex, scene).chat, scene)
    assert obey(f"/load {path}", regex, scene).chat.job.structure is None
