"""Results in Python: their ids, what they print, and what names of other libraries say.

The bar of a call: for who watches, from the first second on, one line.
"""

import copy
import io
import pickle
import re
import sys

import pytest

from gencli import LLM, Completion, Sample
from gencli.core.events import Error, Finish, Timings, Token, ValidationResult
from gencli.errors import UsageError
from gencli.runtime.completion import Bar

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


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


class Broken(Screen):
    """A terminal that is gone."""

    def write(self, text):
        raise OSError


class Cell(io.StringIO):
    """What a notebook's cell has as stderr."""

    __module__ = "ipykernel.iostream"


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def drawn(monkeypatch):
    """A function: what a bar draws on a stream whose clock is at these times, each with one more result."""

    def draw(stream, *times, total=4, progress=None):
        monkeypatch.setattr(sys, "stderr", stream)
        now, done = Clock(), 0
        with Bar(total, lambda now: (done, "3 tok/s"), progress, now=now) as bar:
            for now.time in times:
                done += 1
                bar.tick()
        return stream.getvalue()

    return draw


def test_a_bar_is_drawn_from_the_first_second_on_and_its_last_line_stays(drawn):
    for stream in (Screen(), Cell()):
        lines = drawn(stream, 0.5, 1.5, 1.55, 3.0).split("\r")
        assert [line.rstrip() for line in lines] == [
            "",
            "[############............] 2 of 4, 3 tok/s",
            "[########################] 4 of 4, 3 tok/s, 0:03 taken",
            "[########################] 4 of 4, 3 tok/s, 0:03 taken",
        ]
        assert lines[-1].endswith("\n")


def test_a_short_call_and_a_pipe_have_no_bar_unless_it_is_asked_for(drawn):
    assert drawn(Screen(), 0.2, 0.9) == ""
    assert drawn(io.StringIO(), 0.5, 3.0) == ""
    assert drawn(Screen(), 0.5, 3.0, progress=False) == ""
    assert drawn(Broken(), 0.5, 3.0) == ""
    assert drawn(io.StringIO(), 0.2, progress=True).endswith("1 of 4, 3 tok/s\n")


def test_a_line_fits_the_terminal_and_covers_the_one_before(drawn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    lines = drawn(Screen(), 2.0, 3.0, total=1000).split("\r")[1:]
    assert all(len(line.rstrip("\n")) <= 29 for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    first, second, *_ = drawn(Screen(), 2.0, 3.0, total=2).split("\r")[1:]
    assert len(second) >= len(first)


def test_every_call_of_an_llm_has_a_bar_on_request(capsys):
    with LLM("fake", max_batch=4) as llm:
        values = {"seed": 1, "max_tokens": 4}
        for call, total in (
            (lambda **more: llm.generate(["a", "b", "c"], n=2, **values, **more), 6),
            (lambda **more: llm.generate_from_ids([[97]], **values, **more), 1),
            (lambda **more: llm.score(["abc", "de"], **more), 2),
        ):
            plain = call()
            assert capsys.readouterr().err == ""
            assert call(progress=True) == plain
            *_, last = capsys.readouterr().err.split("\r")
            assert last.startswith(f"[########################] {total} of {total}")
            assert last.endswith("taken\n")


def test_a_program_without_stderr_has_no_bar_on_stdout(monkeypatch, capsys):
    closed = Screen()
    closed.close()
    for stream in (None, closed, object()):
        monkeypatch.setattr(sys, "stderr", stream)
        for progress in (None, True) if isinstance(stream, Screen | None) else (None,):
            with Bar(3, lambda now: (1, ""), progress) as bar:
                bar.tick()
    assert capsys.readouterr().out == ""


def test_an_error_ends_the_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())

    def interrupted():
        with Bar(3, lambda now: (1, ""), True) as bar:
            bar.tick()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sys.stderr.getvalue().endswith("1 of 3\n")


def test_a_sample_says_what_was_drafted():
    with LLM("tiny", dtype="float32", draft="tiny-draft") as llm:
        options = {"temperature": 0, "max_tokens": 24, "draft_tokens": 3}
        (sample,) = llm.generate("Once upon a time", draft_tree="2x3x5", **options).samples
        (plain,) = llm.generate("Once upon a time", draft="none", **options).samples
    assert (sample.text, plain.drafted) == (plain.text, None)
    drafted = sample.drafted
    assert drafted.forwards + sum(drafted.accepted) == sample.completion_tokens == 24
    assert 0 < sum(drafted.accepted) < sum(drafted.proposed) < drafted.nodes
