"""Presets in a running chat: their place among the layers, and what they cannot change."""

import pytest

from gencli.chat.chat_state import open_chat
from gencli.chat.slash_commands import run_command
from gencli.errors import ConfigError, UsageError


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
