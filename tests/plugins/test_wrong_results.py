"""What a plug-in's code may do wrong while it runs: its own rows fail by name, and its neighbours go on."""

import json
import signal
from dataclasses import dataclass, replace

import pytest
import torch

from gencli.core.request import Beams
from gencli.engine.engine import Engine
from gencli.errors import DeviceError
from gencli.models.fake import FakeRunner
from gencli.plugins.adapter import adapt
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


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_logits_fails_its_row_by_name(said):
    (wrong, other), _ = outcomes(returning(WRONG[said]), "odd=1", PLAIN)
    assert isinstance(wrong, Error)
    assert wrong.type == "StageFailure"
    assert wrong.message.startswith(f"The stage 'odd' is wrong: {said}")
    assert "expected" in wrong.message
    assert other.text == plain()


SOUND = {
    "float64": torch.Tensor.double,
    "bfloat16 of what it holds": lambda logits: logits.bfloat16().float().bfloat16(),
    "column by column": lambda logits: logits.t().contiguous().t(),
    "one that learns": lambda logits: torch.nn.Parameter(logits.clone()),
    "a view of something larger": lambda logits: torch.cat([logits, logits], 1)[:, : logits.shape[1]],
    "in place": lambda logits: logits.sub_(0),
}


@pytest.mark.parametrize("kind", SOUND)
def test_what_is_logits_in_another_form_is_taken(kind):
    (found, other), notices = outcomes(returning(SOUND[kind]), "odd=1 | top_k=50 | top_p=0.9", PLAIN)
    if kind.startswith("bfloat16"):
        assert not isinstance(found, Error)
    else:
        assert found.text == outcomes(Odd, "top_k=50 | top_p=0.9")[0][0].text
    assert other.text == plain()
    assert notices == []


EXITS = [
    ValueError("lost"),
    SystemExit(0),
    SystemExit(3),
    GeneratorExit(),
    StopIteration(),
    RecursionError(),
    MemoryError(),
]


@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_what_raises_in_apply_fails_its_row_by_name(error):
    (wrong, other), _ = outcomes(raising(error), "odd=1", PLAIN)
    assert wrong.type == "StageFailure"
    assert f"apply raised {type(error).__name__}" in wrong.message
    assert other.text == plain()


def test_a_full_gpu_is_no_fault_of_the_stage():
    errors = [torch.OutOfMemoryError("CUDA out of memory.")]

    def apply(self, logits, rows):
        if errors:
            raise errors.pop()
        return logits

    ends, notices = outcomes(with_hook(apply=apply), "odd=1", "odd=2", PLAIN)
    assert not any(isinstance(end, Error) for end in ends)
    assert notices == ["The memory is full with 3 sequences at once; from now on 1 run."]


@pytest.mark.parametrize("hook", ["apply", "prepare", "commit", "admit"])
def test_a_failed_gpu_is_no_fault_of_the_stage(hook):
    with pytest.raises(DeviceError, match="illegal memory access"):
        outcomes(
            raising(torch.AcceleratorError("CUDA error: an illegal memory access"), hook), "odd=1", PLAIN
        )


@pytest.mark.parametrize("error", [ValueError("lost"), SystemExit(0), GeneratorExit()], ids=repr)
@pytest.mark.parametrize(
    "hook", ["__init__", "admit", "prepare", "commit", "preview", "completion", "predicted"]
)
def test_what_raises_in_a_hook_fails_its_row_by_name(hook, error):
    stage = raising(error, hook)
    if hook in ("__init__", "admit"):
        with pytest.raises(StageFailure, match=f"{hook} raised {type(error).__name__}"):
            outcomes(stage, "odd=1")
        return
    if hook in ("completion", "predicted"):  # which only a request with a grammar asks for
        pipeline = engine(registry=registry(stage)).pipeline
        pipeline.stage("odd").admit(0, OddParams(1), None)
        assert getattr(pipeline.stage("odd"), hook)(0, ()) == ()
        assert hook in pipeline.stage("odd").fault(0).text
        return
    (wrong, other), _ = outcomes(stage, "odd=1", PLAIN)
    assert wrong.type == "StageFailure"
    assert f"{hook} raised {type(error).__name__}" in wrong.message
    assert other.text == plain()


@pytest.mark.parametrize(
    ("hook", "result"),
    [
        ("prepare", "x"),
        ("prepare", torch.zeros(1)),
        ("preview", 7),
        ("preview", (GrammarStatus("free"),) * 9),
        ("preview", ("free",)),
    ],
)
def test_what_a_hook_returns_is_checked(hook, result):
    (wrong, other), _ = outcomes(with_hook(**{hook: lambda *_: result}), "odd=1", PLAIN)
    assert wrong.type == "StageFailure"
    assert f"{hook} returned" in wrong.message
    assert "expected" in wrong.message
    assert other.text == plain()


def test_a_stage_that_refuses_a_request_only_when_its_turn_comes_fails_that_request():
    calls = []

    def admit(self, slot, params, request):
        calls.append(slot)
        if len(calls) == 3:  # after the requests were submitted
            raise ValueError("not now")

    (wrong, other), _ = outcomes(with_hook(admit=admit), "odd=1", "odd=1")
    assert wrong.type == "StageFailure"
    assert "admit raised ValueError('not now')" in wrong.message
    assert not isinstance(other, Error)


def test_what_raises_in_release_is_said_and_fails_nothing():
    (end, _), notices = outcomes(raising(ValueError("lost"), "release"), "odd=1", "odd=1")
    assert not isinstance(end, Error)
    assert [text for text in notices if "release raised ValueError('lost')" in text] == notices
    assert len(notices) == 1


@pytest.mark.parametrize("hook", ["fork", "apply", "commit", "admit"])
def test_a_search_fails_by_name(hook):
    calls = []

    def late(*_):
        calls.append(hook)
        if len(calls) > 1:
            raise ValueError("lost")

    stage = with_hook(admit=late) if hook == "admit" else raising(ValueError("lost"), hook)
    (end,), _ = outcomes(stage, "odd=1", beams=Beams(2))
    assert end.type == "StageFailure"
    assert f"{hook} raised ValueError('lost')" in end.message


def test_an_exception_that_does_not_come_again_is_said_once():
    def apply(self, logits, rows):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls in (2, 4):
            raise ValueError("once")
        return logits

    (end,), notices = outcomes(with_hook(apply=apply), "odd=1")
    assert not isinstance(end, Error)
    (text,) = notices
    assert "apply raised ValueError('once')" in text


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


def test_a_slot_is_sound_again_for_the_next_request():
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


@pytest.mark.parametrize(
    "result", [None, "x", torch.zeros(3), torch.zeros(1, 258).long()], ids=["None", "text", "shape", "dtype"]
)
def test_a_callable_that_returns_no_logits_fails_its_row(result):
    stage = adapt(lambda ids, logits: result, "odd", "a test")
    (wrong, other), _ = outcomes(stage, "odd", PLAIN)
    assert wrong.message.startswith("The stage 'odd' is wrong: apply returned ")
    assert other.text == plain()


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


def test_a_plugin_that_raises_when_it_is_admitted_exits_with_4(run, plugin):
    code = CODE.replace(
        "BODY", "return logits\n    def admit(self, slot, params, request): raise SystemExit(0)"
    )
    done = run("--plugin", plugin(code), "--stage", "odd=1", "hi")
    assert done.code == 4
    assert "admit raised SystemExit" in done.err


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


def test_what_gather_gives_keeps_logits_what_they_are(run, plugin):
    code = CODE.replace("BODY", 'return logits + self.columns.gather("by", rows)[:, None]')
    assert run("--plugin", plugin(code), "--stage", "odd=1", "--max-tokens", 2, "hi").code == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return logits.double()", "returns_logits: apply returned float64, float32 expected"),
        ("return None", "returns_logits: apply returned None (is its return missing?), a tensor"),
        ("raise SystemExit(0)", "returns_logits: SystemExit: 0"),
    ],
)
def test_the_kit_says_it_in_those_words(gencli, plugin, body, said):
    done = gencli("stages", "check", plugin(CODE.replace("BODY", body)))
    assert done.code == 4
    assert said in done.out
