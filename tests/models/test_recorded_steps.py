"""The option `cuda_graphs`: on is refused by name where nothing can be recorded.

Recorded decode steps, of gencli's decoder and of transformers: what holds for both.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gencli.core.events import Finish
from gencli.core.request import Drafting, Guidance, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import ModelError, UsageError
from gencli.models.backend import EXPERTS_ON_HOST
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.device import make_graphs
from gencli.results.run_record import stats
from gencli.runtime.model_loading import ModelChoice, load
from gencli.speculative.draft_model import ModelDrafter
from processors.graphs import Graphs
from tests.engine.harness import TOKENIZER, request
from tests.models.cases import case
from tests.models.decoder.test_decode_steps import runner as decoder_runner
from tests.models.native import native_decoder
from tests.models.schedules import behind_a_move, held, prompts, tokens_at
from tests.models.test_hf_graphs import runner as library_runner
from tests.models.tiny_models import build_native
from tests.recorder import CpuRecorder
from tests.sham import CUDA, sham_device

CPU = torch.device("cpu")


def test_what_has_fixed_shapes_is_recorded_on_cuda_alone_unless_that_is_off():
    records = {choice: make_graphs(choice, "", CUDA).records for choice in ("auto", "on", "off")}
    assert records == {"auto": True, "on": True, "off": False}
    for why_not, device in (("", CPU), (EXPERTS_ON_HOST, CUDA)):
        assert make_graphs("auto", why_not, device) is make_graphs("off", why_not, device) is None
        with pytest.raises(
            ModelError, match=f"`cuda_graphs` is on, but {why_not or 'the model runs on cpu'}"
        ):
            make_graphs("on", why_not, device)


def test_models_without_graphs_refuse_on():
    for choice, error, message in [
        (ModelChoice("tiny", device="cpu"), ModelError, "`cuda_graphs` is on, but the model runs on cpu"),
        (ModelChoice("tiny", device="cpu", backend="transformers"), ModelError, "the model runs on cpu"),
        (ModelChoice("fake"), UsageError, "`cuda_graphs` is on, but the fake model knows only auto and off"),
    ]:
        with case(choice, error, message), pytest.raises(error, match=message):
            load(replace(choice, cuda_graphs="on"))


def outcome(run):
    """The texts of two requests, and the engine's notices."""
    engine = Engine(run, TOKENIZER, max_batch=2, run_ahead=False)
    for text in ("ab", "cde"):
        engine.submit(request(text, chain="ignore_eos=true | temperature=0.8", max_tokens=8))
    ends = {event.request: event.text for event in engine.run() if isinstance(event, Finish)}
    return ends, engine.notices


class Broken:
    """A recorder that cannot record."""

    def record(self, run):
        raise RuntimeError("the driver is old")

    def renew(self):
        pass


@pytest.mark.parametrize("kind", ["draft model", "amateur"])
def test_a_person_is_told_of_a_capture_that_fails_in_another_model_than_the_first(kind):
    decoder = native_decoder(build_native("llama"))
    run, other = DecoderRunner(decoder), DecoderRunner(decoder, graphs=Graphs(Broken))
    if kind == "amateur":
        given, options = {"guidance": Guidance(1.5, amateur="small")}, {"amateurs": {"small": other}}
    else:
        given, options = {"drafting": Drafting("model", 2)}, {"drafter": ModelDrafter(other)}
    engine = Engine(run, TOKENIZER, max_batch=2, **options)
    engine.submit(request("ab", chain="ignore_eos=true | temperature=0.8", max_tokens=9, **given))
    assert [event for event in engine.run() if isinstance(event, Finish)]
    assert engine.notices == [
        "A CUDA graph could not be recorded (the driver is old): such steps run without it."
    ]


def lines(spec):
    info = SimpleNamespace(compiled=None, job=None, chain=None)
    found = stats(SimpleNamespace(finishes=()), info, spec, load_seconds=0.0, threads=1)
    return [line for line in found if line.startswith("graphs")]


def test_stats_say_what_was_replayed():
    run = DecoderRunner(native_decoder(build_native("llama")), graphs=Graphs(CpuRecorder))
    outcome(run)
    assert lines(run.spec) == ["graphs: 1 recorded, replayed in 6 steps"]
    assert lines(DecoderRunner(native_decoder(build_native("llama"))).spec) == []
    with sham_device():
        off = DecoderRunner(native_decoder(build_native("llama"), CUDA))
        assert lines(off.spec) == ["graphs: none, as `cuda_graphs` is off"]


both_runners = pytest.mark.parametrize("make", [decoder_runner, library_runner], ids=["decoder", "library"])


def store_of(run):
    """What holds the buffers of keys and values."""
    return run._lanes._store if isinstance(run, DecoderRunner) else run._lanes._cache.store


@both_runners
def test_nobody_reads_the_spare_row(make):
    wanted = held(make("llama", Graphs(CpuRecorder)), steps=4)
    run = make("llama", Graphs(CpuRecorder))
    assert torch.equal(held(run, steps=1)[0], wanted[0])
    store = store_of(run)
    with torch.inference_mode():
        for buffer in store.buffers:
            buffer.data[store.spare] = torch.nan
    for step, one in enumerate(wanted[1:], 1):
        assert torch.equal(run.forward(tokens_at(5 + step)), one)


@both_runners
def test_growing_buffers_are_recorded_anew(make):
    graphs = Graphs(CpuRecorder)
    found = []
    for one in (graphs, Graphs(None)):
        run = make("llama", one)
        found.append(held(run, steps=3))
        run.forward(StepPlan((prompts(600, [3]).feeds[0],)))
        found[-1] += [run.forward(tokens_at(8 + step)) for step in range(4)]
    assert all(map(torch.equal, *found))
    assert graphs.num_recorded == 2


@both_runners
def test_a_buffer_of_a_later_layer_that_moves_alone_is_read_where_it_is(make):
    runs = [make("llama", Graphs(recorder)) for recorder in (CpuRecorder, None)]
    found = [behind_a_move(run, store_of(run).buffers[-1]) for run in runs]
    assert all(map(torch.equal, *found))


@both_runners
def test_a_draft_of_the_first_layers_has_graphs_of_its_own(make):
    graphs = Graphs(CpuRecorder)
    draft = make("llama", graphs).first_layers(1, max_lanes=2)
    held(draft, steps=3, lanes=(0,))
    assert draft.spec.graphs is not graphs
    assert draft.spec.graphs.num_recorded == 1
