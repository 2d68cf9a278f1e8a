"""A conversation is drawn by the preset `chat` where nothing gives a value; a template applies by default."""

import json
import shutil

import pytest

from gencli.config.layers import gather
from gencli.models.files.local_models import bundled_folder

PLAIN = {"temperature": "temperature=0.8", "top_k": "k=40", "top_p": "p=0.95", "min_p": "p=0.05"}


@pytest.fixture
def draw(chain):
    """Call `draw(*arguments)`: the stages whose values are defaults of a chat, and the values of all."""

    def show(*arguments):
        rows = chain(*arguments)
        of_chat = {stage for stage, _, origin in rows if origin.startswith("default of chat")}
        return of_chat, {stage: value for stage, value, _ in rows}

    return show


@pytest.fixture
def model(tmp_path):
    """The folder of a model that is not bundled; its tokenizer has a chat template."""
    return shutil.copytree(bundled_folder("tiny"), tmp_path / "model")


def test_options_without_a_value_take_that_of_the_preset(draw, here, model):
    assert draw("--chat") == (PLAIN.keys(), PLAIN)
    assert draw("--chat", "--top-k", "7")[1] == {**PLAIN, "top_k": "k=7"}
    assert draw("--chat", "--temperature", "0")[0] >= {"top_k"}
    assert draw() == draw("--raw") == (set(), {})
    (model / "generation_config.json").write_text(json.dumps({"top_p": 0.5}))
    of_chat, rows = draw("--chat", "-m", str(model))
    assert of_chat == {"temperature", "top_k", "min_p"}
    assert rows["top_p"] == "p=0.5"


def test_what_decides_the_draw_itself_stays_as_it_is(draw, here):
    here("own.yaml", "chat: true\ntypical: 0.9\n")
    here("voice.yaml", "chat: true\nrepetition_penalty: 1.1\n")
    here("steered.yaml", "chat: true\nstages: {mirostat: {version: 2}}\n")
    assert draw("--preset", "own.yaml") == (set(), {"typical": "p=0.9"})
    assert draw("--preset", "voice.yaml")[0] == PLAIN.keys()
    for flags in (
        ("--compat", "vllm"),
        ("--sampler", "greedy"),
        ("--chain", "temperature"),
        ("--beams", "2"),
    ):
        assert not draw("--chat", *flags)[0], flags
    assert draw("--chat", "--mirostat", "2")[0] == {"temperature"}


def test_the_models_template_applies_where_no_option_says_otherwise(here, model):
    def is_chat(**given):
        settings = gather({"model": str(model), **given}, {}, applies_template=True)
        return settings["chat"], settings.origin("chat")

    assert is_chat() == (True, "default of chat")
    assert is_chat(system="Be brief.")[0]
    assert is_chat(raw=True) == (False, "default")
    assert is_chat(template="Say {{ prompt }}") == (False, "default")
    assert is_chat(model="tiny") == (False, "default")
    assert not gather({"model": str(model)}, {})["chat"]
    (model / "tokenizer_config.json").write_text("{}")
    (model / "chat_template.jinja").unlink(missing_ok=True)
    assert is_chat() == (False, "default")


def test_a_pipe_takes_the_prompt_as_it_is_and_says_so(gencli, here, model):
    told = "The model has a chat template, which --chat applies; --raw says that the prompt is complete."
    plain = gencli("run", "-m", str(model), "--max-tokens", "3", "Once")
    assert told in " ".join(plain.err.split())
    silent = gencli("run", "-m", str(model), "--max-tokens", "3", "--raw", "Once")
    assert "template" not in silent.err
    assert silent.out == plain.out
