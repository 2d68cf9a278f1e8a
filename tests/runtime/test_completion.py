"""Results in Python: their ids, what they print, and what names of other libraries say."""

import copy
import pickle
import re

import pytest

from gencli import LLM, Completion, Sample
from gencli.core.events import Error, Finish, Timings, Token, ValidationResult
from gencli.errors import UsageError

HOSTILE = "</script><script>owned=1</script><img src=x onerror=owned=1>\u202e\x1b[2J"


@pytest.fixture(scope="module")
def fake():
    with LLM("fake", max_batch=4) as made:
        yield made


def finish(sample=0, text="ab", reason="eos", **rest):
    return Finish("1", sample, text, reason, None, None, 3, 2, Timings(0, 0, 0), **rest)


def test_a_completion_has_its_first_sample_at_hand():
    value = ValidationResult(value={"a": 1}, written='{"a":1}')
    ends = finish(text="raw", verdict=value), Error("1", 1, "GenerationError", "It failed.", "a")
    done = Completion("hi", tuple(Sample.of(end, ids=(7, 8)) for end in ends), (), (1,))
    assert (done.texts, done.parsed, done.error) == (['{"a":1}', "a"], {"a": 1}, None)
    assert (done.samples[1].finish_reason, done.samples[1].error) == ("error", "It failed.")
    assert (done.token_ids, done.samples[1].token_ids) == ((7, 8), (7, 8))
    for twin in (copy.deepcopy(done), pickle.loads(pickle.dumps(done))):
        assert twin == done


def test_ids_are_those_that_were_generated_with_stop_and_end(fake):
    out = fake.generate("hi", seed=1, stop=["ab"], allow_ids=[97, 98, 99], max_tokens=60)
    assert (out.finish_reason, "ab" in out.text) == ("stop", False)
    assert bytes(out.token_ids).decode() == out.text + "ab"
    assert out.prompt_token_ids == (*b"hi",)
    ended = fake.generate("hi", seed=1, allow_ids=[97, 257], max_tokens=60)
    assert (ended.finish_reason, ended.token_ids[-1]) == ("eos", 257)


def test_ids_are_those_of_the_events_for_every_way_to_choose_a_text(fake):
    for values in (
        {"n": 2, "seed": 2},
        {"beams": 3, "n": 2},
        {"best_of": 4, "n": 2, "seed": 2},
        {"contrastive_alpha": 0.6},
        {"draft": "ngram", "seed": 2},
        {"ban": ["e"], "seed": 3},
        {"regex": "[a-d]{3}", "seed": 2},
    ):
        out = fake.generate("hi", max_tokens=8, **values)
        streamed = {}
        for event in fake.stream("hi", max_tokens=8, **values):
            if isinstance(event, Token):
                streamed.setdefault(event.sample, []).extend(event.ids)
        for number, sample in enumerate(out.samples):
            assert len(sample.token_ids) == sample.completion_tokens, values
            assert list(sample.token_ids) == streamed[number][-sample.completion_tokens :], values
    (same,) = fake.generate_from_ids([[*b"hi"]], max_tokens=1, seed=1)
    assert same.prompt_token_ids == (*b"hi",)


def test_names_of_other_libraries_say_what_there_is_here(fake):
    out = fake.generate("hi", max_tokens=2, seed=1)
    for value, name, said in (
        (out, "outputs", "Completion has no attribute 'outputs'. Take samples, as in out.samples[0].text"),
        (out, "choices", "samples"),
        (out, "generated_text", "Take text."),
        (out, "usage", "samples[0].completion_tokens"),
        (out.samples[0], "stop_reason", "Take matched"),
        (out.samples[0], "cumulative_logprob", "logprobs"),
        (fake, "get_tokenizer", "llm.tokenizer"),
        (fake, "create_chat_completion", "Take chat."),
    ):
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(value, name)
        assert not hasattr(value, name)
    with pytest.raises(AttributeError, match="no attribute 'txt'") as caught:
        _ = out.txt
    assert (caught.value.name, caught.value.obj) == ("txt", out)  # by which Python names the nearest
    for misuse in (lambda: out[0], lambda: list(out), lambda: out["choices"]):
        with pytest.raises(TypeError, match="a list of them for a list of prompts"):
            misuse()
    with pytest.raises(UsageError, match="progress=False draws no bar"):
        fake.generate("hi", use_tqdm=False)


def test_values_print_as_one_short_line_that_is_always_the_same(fake):
    asked = {"max_tokens": 3, "temperature": 0, "allow_ids": [97]}
    out = fake.generate("hi", **asked, trace=1)
    end = "text='aaa', finish_reason='length', completion_tokens=3)"
    assert repr(out) == f"Completion(prompt='hi', {end}"
    assert repr(out.samples[0]) == f"Sample({end}"
    assert repr(out.trace) == "Trace(3 tokens, 3 decided by a stage)"
    long = fake.generate("x\n" * 400, seed=1, n=3, max_tokens=90)
    for value in (long, long.samples[0]):
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200
    assert "3 samples" in repr(long)
    failed = Sample.of(Error("1", 0, "GenerationError", "It failed.", "a"))
    assert repr(failed) == "Sample(text='a', finish_reason='error', completion_tokens=0, error='It failed.')"


def test_an_llm_prints_what_it_is(tmp_path):
    with LLM("fake", max_batch=3) as llm:
        assert repr(llm) == "LLM('fake', float32, device='cpu', context=1024, max_batch=3)"
    with LLM("tiny", dtype="bfloat16", draft="ngram") as llm:
        assert repr(llm).startswith("LLM('tiny', bfloat16, device='cpu'")
        assert repr(llm).endswith("draft='ngram')")


def test_a_notebook_shows_a_completion_without_its_texts_being_markup(fake):
    out = fake.generate(HOSTILE, seed=1, max_tokens=6, n=2, trace=2)
    plain = Completion(HOSTILE, (Sample(HOSTILE, "stop", HOSTILE, HOSTILE),))
    for value in (out, plain, *plain.samples, out.trace):
        html = value._repr_html_()
        assert not re.search(r"<(script|img)|\x1b|\u202e", html)
        assert html.startswith('<div class="gencli"><style>')
    assert plain._repr_html_().count("&lt;script&gt;owned=1") == 4
    assert out._repr_html_().count('<p class="legend">') == 2
