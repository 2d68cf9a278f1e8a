"""The front door: a model that is loaded once, and texts as the command line would write them.

Explanations of tokens in Python: the records of `gencli run --trace`, beside the text they explain.
"""

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from gencli import LLM, Error, Finish, GencliWarning, SamplingParams, Token
from gencli.cli import app
from gencli.errors import ConfigError, UsageError
from gencli.models.files.local_models import find_local
from processors.errors import ParamError, UnknownStage


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32", max_batch=4) as made:
        yield made


@pytest.fixture(scope="module")
def fake():
    with LLM("fake") as made:
        yield made


def test_the_text_is_that_of_the_command_line(fake, capsys, monkeypatch):
    flags = ["run", "-m", "fake", "--seed", "3", "--top-p", "0.7", "--max-tokens", "20", "hi"]
    monkeypatch.setattr(sys, "argv", ["gencli", *flags])
    assert app.main() == 0
    out = fake.generate("hi", SamplingParams(seed=3, top_p=0.7, max_tokens=20))
    assert out.text + "\n" == capsys.readouterr().out
    assert (out.finish_reason, out.samples[0].matched) == ("length", "max_tokens")


def test_completions_come_in_the_order_of_the_prompts_each_with_params_of_its_own(fake):
    params = SamplingParams(seed=1, max_tokens=12, n=2)
    both = fake.generate(["a", "b"], params)
    assert [one.prompt for one in both] == ["a", "b"]
    assert fake.generate(["a"], params)[0].texts == both[0].texts
    assert len(set(both[0].texts + both[1].texts)) == 4
    long, short = SamplingParams(max_tokens=9, seed=1), SamplingParams(max_tokens=2, seed=1)
    counts = [one.samples[0].completion_tokens for one in fake.generate(["a", "b"], [long, short])]
    assert counts == [9, 2]
    with pytest.raises(UsageError, match="There are 1 SamplingParams for 2 prompts"):
        fake.generate(["a", "b"], [long])


def test_a_chain_as_text_gives_stages_values_and_order(fake):
    by_text = fake.generate("hi", chain="min_p=0.05 | temperature=0.8", seed=2, max_tokens=20)
    order = {"chain": ["min_p", "temperature"], "min_p": 0.05, "temperature": 0.8}
    by_key = fake.generate("hi", **order, seed=2, max_tokens=20)
    assert by_text == by_key


def test_a_conversation_is_put_into_the_template(llm):
    messages = [{"role": "user", "content": "Tell me a story about a brave fox."}]
    out = llm.chat(messages, temperature=0, max_tokens=16)
    assert "fox" in out.prompt
    assert llm.chat([messages, messages], temperature=0, max_tokens=16) == [out, out]


def test_a_stream_tells_the_same_text_in_pieces(fake):
    params = SamplingParams(seed=4, max_tokens=10)
    events = list(fake.stream(["a", "b"], params))
    for number, whole in enumerate(fake.generate(["a", "b"], params)):
        mine = [event for event in events if event.request == str(number)]
        assert "".join(event.text for event in mine if isinstance(event, Token)) == whole.text
        assert sum(isinstance(event, Finish | Error) for event in mine) == 1


def test_a_stream_that_is_left_ends_and_no_other_begins_before(fake):
    stream = fake.stream("a", seed=1, max_tokens=400)
    next(stream)
    with pytest.raises(UsageError, match="is open"):
        fake.generate("b")
    stream.close()
    assert fake.generate("a", seed=1, max_tokens=3).finish_reason == "length"


def test_what_is_wrong_is_said_without_flags(fake):
    for values, message in (
        ({"temprature": 1}, "Did you mean temperature"),
        ({"top_p": 2}, "top_p is 2, but has to be"),
        ({"dtype": "float32"}, "is an argument of LLM"),
        ({"format": "json"}, "not about one request"),
        ({"ban": ["a"], "stages": {"ban": ["b"]}}, "ban"),
        ({"beams": 3, "n": 5}, "n is 5, but with beams 3"),
        (
            {"contrastive_alpha": 0.6, "n": 5},
            "n 5 asks for more .*, but with contrastive_alpha 0.6",
        ),
        ({"json_schema": {"type": "text"}}, "text"),
    ):
        with pytest.raises((UsageError, ConfigError), match=message) as caught:
            fake.generate("a", SamplingParams(**values))
        assert "--" not in str(caught.value), message
    with pytest.raises(UnknownStage, match="no stage 'tempratur'. Did you mean 'temperature'"):
        fake.generate("a", SamplingParams(chain="tempratur=1"))


OWN_STAGE = "examples/plugin_minimal/gencli_max_run.py:MaxRun"


def test_stages_of_plug_ins_are_read_by_the_llm_that_has_them():
    for values in ({"chain": "max_run=1"}, {"stages": {"max_run": 1}}):
        with LLM("fake", plugins=[OWN_STAGE]) as llm:
            events = llm.stream("hi", SamplingParams(**values), seed=5, max_tokens=40)
            ids = [token for event in events if isinstance(event, Token) for token in event.ids]
            assert all(token != following for token, following in pairwise(ids)), values
            with pytest.raises(UnknownStage, match="Did you mean 'max_run'"):
                llm.generate("hi", chain="maxrun=1")


def test_values_are_checked_at_once():
    for values in ({"chain": "top_p=2"}, {"stages": {"top_p": 2}}, {"chain": "own=1", "top_p": 2}):
        with pytest.raises((ParamError, UsageError), match="top_p"):
            SamplingParams(**values)
    for options, message in (({"dtyp": "x"}, "Did you mean dtype"), ({"dtype": "x"}, "dtype: 'x'")):
        with pytest.raises(UsageError, match=message):
            LLM("fake", **options)


def test_a_notice_is_kept_and_is_a_warning_once(fake):
    with pytest.warns(GencliWarning, match="change nothing: top_p") as caught:
        fake.generate("a", temperature=0, top_p=0.5, max_tokens=1)
    fake.generate("a", temperature=0, top_p=0.5, max_tokens=1)
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert any("change nothing: top_p" in text for text in fake.notices)
    with pytest.warns(GencliWarning, match="change nothing: top_k"):
        list(fake.stream("a", temperature=0, top_k=5, max_tokens=1))


def test_notices_about_the_model_reach_python(tmp_path):
    folder = shutil.copytree(find_local("tiny"), tmp_path / "model")
    config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**config, "eos_token_id": [1, 99999]}))
    with pytest.warns(GencliWarning, match="Token id 99999 is declared to end texts"):
        llm = LLM(str(folder), dtype="bfloat16", invariant="off")
    with llm, pytest.warns(GencliWarning, match="In bfloat16 .* With `dtype` = float32 it does not"):
        llm.generate(["a", "b"], max_tokens=1)
    assert len(llm.notices) == 2


def test_messages_are_checked_as_those_of_a_batch_are_and_their_parts_joined(llm):
    for messages, message in (
        ("hello", "messages has to be a list of objects"),
        ([[]], "messages has to be a list of objects"),
        ([{"role": "robot", "content": "x"}], "Message 1 has the role 'robot'"),
        ([[{"role": "user", "content": "x"}, {"role": "user"}]], "Message 2 has no content that is a text."),
        ([{"role": "user", "content": "x", "name": "y"}], "Message 1 has 'name'"),
    ):
        with pytest.raises(UsageError, match=message):
            llm.chat(messages)
    parts = [{"type": "text", "text": "a brave "}, {"type": "text", "text": "fox"}]
    assert "a brave fox" in llm.chat([{"role": "user", "content": parts}], max_tokens=1).prompt


def test_params_show_what_was_given():
    params = SamplingParams(temperature=0.5, stop=["a"])
    assert repr(params) == "SamplingParams(temperature=0.5, stop=['a'])"
    assert dict(params.replaced(temperature=None, seed=1)) == {"stop": ["a"], "seed": 1}


PARAMS = SamplingParams(temperature=1.6, top_k=6, repetition_penalty=1.2, max_tokens=10, seed=4, trace=3)


@pytest.fixture(scope="module")
def tracing_fake():
    with LLM("fake", max_batch=3) as made:
        yield made


def test_a_stream_has_an_explanation_for_each_token(tracing_fake):
    tokens = [event for event in tracing_fake.stream("the cat", PARAMS) if isinstance(event, Token)]
    assert tokens
    assert all([view.token for view in event.views] == list(event.ids) for event in tokens)


def test_what_is_no_number_of_ids_and_what_draws_no_tokens_has_no_trace(tracing_fake):
    for value in (0, -1, 101, 10**90, True, "3", 2.5, float("nan"), [1]):
        with pytest.raises(UsageError, match="trace is "):
            SamplingParams(trace=value)
    for values, said in (({"beams": 2}, "beams 2"), ({"finish_open": True, "json": True}, "finish_open")):
        with pytest.raises(UsageError, match=f"trace and {said} do not go together"):
            tracing_fake.generate("a", trace=2, **values)
    with pytest.raises(UsageError, match="`trace` does not affect these scores"):
        tracing_fake.score("abc", trace=3)
