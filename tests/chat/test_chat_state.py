"""A chat as a value: conversation, presets, transcripts."""

import json

import pytest

from gencli.chat.chat_state import Conversation, draw_seed, open_chat, prompt_ids
from gencli.chat.slash_commands import run_command
from gencli.errors import ConfigError, GenerationError, UsageError
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


@pytest.fixture
def preset(tmp_path):
    """Write a preset file; its path."""

    def write(text, name="mine"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    return write


def shown(chat, scene, key):
    """The cells of each line of /show."""
    return [list(row) for row in run_command(f"/show {key}", chat, scene).rows]


@pytest.fixture
def tried(chat, scene):
    """The chat after these lines."""

    def after(*lines, begin=chat):
        for line in lines:
            begin = run_command(line, begin, scene).chat
        return begin

    return after


def test_a_preset_is_above_the_defaults_and_below_environment_flags_and_set(tried, preset, monkeypatch):
    path = preset("top_p: 0.5\nmin_p: 0.2\ntop_k: 9\n")
    chat = tried("/set min-p 0.1", f"/preset {path}")
    assert [chat.settings[key] for key in ("top_p", "min_p", "top_k")] == [0.9, 0.1, 9]
    assert chat.conversation == tried().conversation

    monkeypatch.setenv("GENCLI_TOP_K", "3")
    assert tried(f"/preset {preset('top_k: 9')}").settings["top_k"] == 3


def test_presets_stack_and_the_last_one_wins(tried, preset, scene, chat):
    one, two = preset("top_k: 1\nloop: 3\n", "one"), preset("top_k: 2\n", "two")
    chat = tried(f"/preset {one}", f"/preset {two}")
    assert (chat.settings["top_k"], chat.settings["loop"]) == (2, 3)
    again = tried(f"/preset {one}", begin=chat)
    assert (again.settings["top_k"], again.settings["preset"]) == (1, (two, one))

    chat = tried("/preset story", begin=open_chat({"preset": ["precise"]}))
    assert chat.settings["preset"] == ("precise", "story")
    assert run_command("/preset", chat, scene).text.startswith(
        "Presets here: precise, story. There are: balanced,"
    )

    with pytest.raises(ConfigError, match="no preset 'stroy'") as caught:
        run_command("/preset stroy", chat, scene)
    assert "'story'" in caught.value.hint


def test_what_a_running_chat_cannot_change_is_refused_by_name_and_line(chat, scene, preset, tried):
    for line, hint in [
        ("model: other", "chat `preset`"),
        ("device: cuda", "chat `preset`"),
        ("dtype: float16", "chat `preset`"),
        ("threads: 2", "chat `preset`"),
        ("raw: true", "chat `preset`"),
        ("n: 2", ""),
        ("format: json", ""),
    ]:
        path = preset(f"top_k: 5\n{line}\n")
        with pytest.raises(UsageError, match="cannot change in a running chat") as caught:
            run_command(f"/preset {path}", chat, scene)
        assert f"{line.partition(':')[0]} ({path}:2)" in caught.value.message, line
        assert hint in caught.value.hint, line

    assert tried(f"/preset {preset('model: tiny')}").settings["model"] == "tiny"
    other = open_chat({"dtype": "float32"})
    assert tried(f"/preset {preset('dtype: float16')}", begin=other).settings["dtype"] == "float32"

    with pytest.raises(UsageError, match="a turn of a chat has one answer"):
        open_chat({"preset": [preset("n: 2")]})


def test_seed_and_system_message_are_taken_unless_the_chat_was_told_its_own(tried, preset):
    path = preset("seed: 3\nsystem: Be kind.\n")
    free = tried(f"/preset {path}", begin=open_chat({})).conversation
    assert (free.seed, free.system) == (3, "Be kind.")
    told = tried("/seed 5", "/system Be brief.", f"/preset {path}", begin=open_chat({})).conversation
    assert (told.seed, told.system) == (5, "Be brief.")
    assert tried(f"/preset {path}").conversation.seed == 7  # a flag gave it


def test_show_prints_what_a_stages_own_entry_makes_of_an_option(tried, scene, preset):
    path = preset("stages:\n  top_k: {k: 40, keep: 2}\n  repetition: {penalty: 1.2, window: 64}\n")
    chat = tried(f"/preset {path}")
    keep = ["top_k.keep", "2", f"preset {path}:2"]
    assert shown(chat, scene, "top-k") == [["top-k", "40", f"preset {path}:2"], keep]
    assert shown(tried("/set top-k 7", begin=chat), scene, "top-k") == [["top-k", "7", "/set"], keep]
    assert shown(chat, scene, "penalty-window") == [["repetition.window", "64", f"preset {path}:3"]]
    assert shown(chat, scene, "repetition")[0] == ["repetition-penalty", "1.2", f"preset {path}:3"]
    assert keep in shown(chat, scene, "")

    path = preset("chain:\n  - temperature: 0.6\n  - top_p\n  - top_k: 50\n")
    chat = tried(f"/preset {path}")
    assert shown(chat, scene, "temperature") == [["temperature", "0.6", f"preset {path}:2"]]
    assert shown(chat, scene, "chain") == [["chain", "temperature, top_p, top_k", f"preset {path}:1"]]

    chat = tried("/set stage top_p:keep=2")
    assert ["top_p.keep", "2", "/set `stage` = 'top_p:keep=2'"] in shown(chat, scene, "")


def test_default_takes_flag_and_set_away_and_says_what_acts_then(tried, scene, preset):
    path = preset("stages: {top_p: 0.7}\ntemperature_last: true\n")
    chat = tried(f"/preset {path}", "/set top-p 0.3")
    reply = run_command("/set top-p default", chat, scene)
    assert reply.text == f"top-p is 0.7 from the next answer on (preset {path}:1)."
    assert (
        run_command("/set min-p default", chat, scene).text == "min-p is 0 from the next answer on (default)."
    )
    off = run_command("/set temperature-last off", chat, scene).chat
    assert not off.settings["temperature_last"]
    assert run_command("/set temperature-last default", off, scene).chat.settings["temperature_last"]


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

    with pytest.raises(UsageError, match="`min_tokens` asks for 40 tokens, but max_tokens .* allows 30"):
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
