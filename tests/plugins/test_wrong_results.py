"""What a plug-in's code may do wrong while it runs: its own rows fail by name, and its neighbours go on."""

import json
import signal
from dataclasses import dataclass, replace

import pytest
import torch

from gencli.core.request import Beams
from gencli.engine.engine import Engine
from gencli.errors import DeviceError
from gencli.models.other_runners import FakeRunner
from gencli.plugins.plugin_loading import adapt
from processors.base import GrammarStatus, Processor
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.errors import StageFailure
from processors.params import Params, param
from processors.registry import Registry
from tests.engine.harness import TOKENIZER, Error, engine, generate, request
from tests.plugins.conftest import HEAD


@dataclass(frozen=True, slots=True)
class OddParams(Params):
    """Do something odd."""

    by: float = param(0.0, "How odd.", ge=0, le=9)


class Odd(Processor[OddParams]):
    name = "odd"
    phase = Phase.ADJUST
    Params = OddParams

    def apply(self, logits, rows):
        return logits


def with_hook(**hooks):
    return type("Made", (Odd,), hooks)


def returning(make):
    return with_hook(apply=lambda self, logits, rows: make(logits))


def raising(error, hook="apply"):
    def fail(*_, **__):
        raise error

    return with_hook(**{hook: fail})


def registry(stage):
    made = Registry(BUILTIN)
    made.register(stage)
    return made


def outcomes(stage, *chains, beams=None, **options):
    """The end of a request for each chain, run side by side, and what the engine has to say."""
    stages = registry(stage)
    runs_on = Engine(FakeRunner(), TOKENIZER, registry=stages, **options)
    requests = [
        replace(request("abc", key=i, max_tokens=3), chain=Chain.parse(chain, stages), seed=5, beams=beams)
        for i, chain in enumerate(chains)
    ]
    ends = generate(requests, on=runs_on)
    return [ends[one.id, 0] for one in requests], runs_on.notices


PLAIN = "suppress=[1]"


def plain():
    return outcomes(Odd, PLAIN)[0][0].text


WRONG = {
    "apply returned None": lambda logits: None,
    "apply returned a str": lambda logits: "x",
    "apply returned a ndarray": lambda logits: logits.numpy(),
    "apply returned [1, 5]": lambda logits: logits[:, :5],
    "apply returned [258]": lambda logits: logits[0],
    "apply returned [0, 258]": lambda logits: logits[:0],
    "apply returned [1]": lambda logits: logits.resize_(1),
    "apply returned [2, 258]": lambda logits: torch.cat([logits, logits]),
    "apply returned int64": torch.Tensor.long,
    "apply returned bool": lambda logits: logits > 0,
    "apply returned complex64": lambda logits: logits.to(torch.complex64),
    "apply returned a tensor on meta": lambda logits: logits.to("meta"),
    "apply returned a sparse_coo tensor": torch.Tensor.to_sparse,
}


def test_what_is_no_logits_fails_its_row_by_name():
    for said in WRONG:
        (wrong, other), _ = outcomes(returning(WRONG[said]), "odd=1", PLAIN)
        assert isinstance(wrong, Error), said
        assert wrong.type == "StageFailure", said
        assert wrong.message.startswith(f"The stage 'odd' is wrong: {said}"), said
        assert "expected" in wrong.message, said
        assert other.text == plain(), said


SOUND = {
    "float64": torch.Tensor.double,
    "bfloat16 of what it holds": lambda logits: logits.bfloat16().float().bfloat16(),
    "column by column": lambda logits: logits.t().contiguous().t(),
    "one that learns": lambda logits: torch.nn.Parameter(logits.clone()),
    "a view of something larger": lambda logits: torch.cat([logits, logits], 1)[:, : logits.shape[1]],
    "in place": lambda logits: logits.sub_(0),
}


def test_what_is_logits_in_another_form_is_taken():
    for kind in SOUND:
        (found, other), notices = outcomes(returning(SOUND[kind]), "odd=1 | top_k=50 | top_p=0.9", PLAIN)
        if kind.startswith("bfloat16"):
            assert not isinstance(found, Error), kind
        else:
            assert found.text == outcomes(Odd, "top_k=50 | top_p=0.9")[0][0].text, kind
        assert other.text == plain(), kind
        assert notices == [], kind


EXITS = [
    ValueError("lost"), SystemExit(0), SystemExit(3), GeneratorExit(), StopIteration(), RecursionError(),
    MemoryError(),
]  # fmt: skip


def test_what_raises_in_apply_or_returns_no_logits_fails_its_row():
    for error in EXITS:
        (wrong, other), _ = outcomes(raising(error), "odd=1", PLAIN)
        assert wrong.type == "StageFailure", error
        assert f"apply raised {type(error).__name__}" in wrong.message, error
        assert other.text == plain(), error

    for result in [None, "x", torch.zeros(3), torch.zeros(1, 258).long()]:
        stage = adapt(giving(result), "odd", "a test")
        (wrong, other), _ = outcomes(stage, "odd", PLAIN)
        assert wrong.message.startswith("The stage 'odd' is wrong: apply returned "), result
        assert other.text == plain(), result


def test_a_gpu_that_is_full_or_failed_is_no_fault_of_the_stage():
    errors = [torch.OutOfMemoryError("CUDA out of memory.")]

    def apply(self, logits, rows):
        if errors:
            raise errors.pop()
        return logits

    ends, notices = outcomes(with_hook(apply=apply), "odd=1", "odd=2", PLAIN)
    assert not any(isinstance(end, Error) for end in ends)
    assert notices == ["The memory is full with 3 sequences at once; from now on 1 run."]

    for hook in ["apply", "prepare", "commit", "admit"]:
        with pytest.raises(DeviceError, match="illegal memory access"):
            outcomes(
                raising(torch.AcceleratorError("CUDA error: an illegal memory access"), hook), "odd=1", PLAIN
            )


def test_what_raises_in_a_hook_fails_its_row_by_name():
    for error in (ValueError("lost"), SystemExit(0), GeneratorExit()):
        for hook in ("__init__", "admit"):
            with pytest.raises(StageFailure, match=f"{hook} raised {type(error).__name__}"):
                outcomes(raising(error, hook), "odd=1")
        for hook in ("completion", "predicted"):  # which only a request with a grammar asks for
            stage = engine(registry=registry(raising(error, hook))).pipeline.stage("odd")
            stage.admit(0, OddParams(1), None)
            assert getattr(stage, hook)(0, ()) == (), (hook, error)
            assert hook in stage.fault(0).text, (hook, error)
        for hook in ("prepare", "commit", "preview"):
            (wrong, other), _ = outcomes(raising(error, hook), "odd=1", PLAIN)
            assert wrong.type == "StageFailure", (hook, error)
            assert f"{hook} raised {type(error).__name__}" in wrong.message, (hook, error)
            assert other.text == plain(), (hook, error)


def test_what_a_hook_returns_is_checked():
    for hook, result in [
        ("prepare", "x"),
        ("prepare", torch.zeros(1)),
        ("preview", 7),
        ("preview", (GrammarStatus("free"),) * 9),
        ("preview", ("free",)),
    ]:
        (wrong, other), _ = outcomes(with_hook(**{hook: lambda *_, result=result: result}), "odd=1", PLAIN)
        assert wrong.type == "StageFailure", hook
        assert f"{hook} returned" in wrong.message, hook
        assert "expected" in wrong.message, hook
        assert other.text == plain(), hook


def test_a_request_fails_when_its_turn_comes_and_the_next_one_is_sound():
    calls = []

    def admit(self, slot, params, request):
        calls.append(slot)
        if len(calls) == 3:  # after the requests were submitted
            raise ValueError("not now")

    (wrong, other), _ = outcomes(with_hook(admit=admit), "odd=1", "odd=1")
    assert wrong.type == "StageFailure"
    assert "admit raised ValueError('not now')" in wrong.message
    assert not isinstance(other, Error)

    def commit(self, slot, tokens):
        if self.columns.gather("by", self.rows)[0] == 1:
            raise ValueError("lost")

    def apply(self, logits, rows):
        self.rows = rows
        return logits

    stage = with_hook(commit=commit, apply=apply)
    (first, second), _ = outcomes(stage, "odd=1", "odd=2", max_batch=1)
    assert isinstance(first, Error)
    assert not isinstance(second, Error)


def test_what_raises_once_or_in_release_is_said_and_fails_nothing():
    (end, _), notices = outcomes(raising(ValueError("lost"), "release"), "odd=1", "odd=1")
    assert not isinstance(end, Error)
    assert [text for text in notices if "release raised ValueError('lost')" in text] == notices
    assert len(notices) == 1

    def apply(self, logits, rows):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls in (2, 4):
            raise ValueError("once")
        return logits

    (end,), notices = outcomes(with_hook(apply=apply), "odd=1")
    assert not isinstance(end, Error)
    (text,) = notices
    assert "apply raised ValueError('once')" in text


def test_a_search_fails_by_name():
    for hook in ["fork", "apply", "commit", "admit"]:
        calls = []

        def late(*_, calls=calls):
            calls.append(1)
            if len(calls) > 1:
                raise ValueError("lost")

        stage = with_hook(admit=late) if hook == "admit" else raising(ValueError("lost"), hook)
        (end,), _ = outcomes(stage, "odd=1", beams=Beams(2))
        assert end.type == "StageFailure", hook
        assert f"{hook} raised ValueError('lost')" in end.message, hook


def test_ctrl_c_ends_the_program_and_a_keyboard_interrupt_of_its_own_does_not():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            outcomes(raising(KeyboardInterrupt()), "odd=1")
        signal.signal(signal.SIGINT, lambda *_: None)
        (end,), _ = outcomes(raising(KeyboardInterrupt()), "odd=1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "apply raised KeyboardInterrupt" in end.message


def giving(result):
    return lambda ids, logits: result


CODE = (
    HEAD
    + """
@dataclass(frozen=True, slots=True)
class OddParams(Params):
    by: float = param(0.0, "How odd.", ge=0)
class Odd(Processor[OddParams]):
    name, phase, Params = "odd", Phase.ADJUST, OddParams
    def apply(self, logits, rows):
        BODY
"""
)
NONE = CODE.replace("BODY", "pass")
DOUBLE = CODE.replace("BODY", "return logits.double()")


def test_a_run_exits_with_4_and_says_what_was_expected(run, plugin):
    done = run("--plugin", plugin(NONE), "--stage", "odd=1", "hi")
    assert done.code == 4
    assert "The stage 'odd' is wrong: apply returned None (is its return missing?)" in done.err
    assert "fault of gencli" not in done.err

    code = CODE.replace(
        "BODY", "return logits\n    def admit(self, slot, params, request): raise SystemExit(0)"
    )
    done = run("--plugin", plugin(code), "--stage", "odd=1", "hi")
    assert done.code == 4
    assert "admit raised SystemExit" in done.err

    code = CODE.replace("BODY", 'return logits + self.columns.gather("by", rows)[:, None]')
    assert run("--plugin", plugin(code), "--stage", "odd=1", "--max-tokens", 2, "hi").code == 0


def test_a_batch_goes_on_and_resumes(gencli, plugin, tmp_path):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"prompt": "a"}\n{"prompt": "b", "stages": {"odd": 1}}\n{"prompt": "c"}\n')
    said = ("batch", rows, "-m", "fake", "--seed", 1, "--max-tokens", 3, "-o", out, "--no-timings")
    first = gencli(*said, "--plugin", plugin(NONE))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert first.code == 7
    assert [line["error"] and line["error"]["type"] for line in lines] == [None, "StageFailure", None]
    before = out.read_bytes()
    again = gencli(*said, "--plugin", plugin(NONE), "--resume", "--retry-errors")
    assert (again.code, out.read_bytes()) == (7, before)
    sound = gencli(*said, "--plugin", plugin(DOUBLE), "--overwrite")
    assert sound.code == 0


def test_the_kit_says_it_in_those_words(gencli, plugin):
    for body, said in [
        ("return logits.double()", "returns_logits: apply returned float64, float32 expected"),
        ("return None", "returns_logits: apply returned None (is its return missing?), a tensor"),
        ("raise SystemExit(0)", "returns_logits: SystemExit: 0"),
    ]:
        done = gencli("stages", "check", plugin(CODE.replace("BODY", body)))
        assert done.code == 4, body
        assert said in done.out, body
