"""A GPU that is full runs fewer sequences at once and changes no text; one that fails is one clear error."""

import pytest
import torch
import transformers as hf

from gencli.core.events import Error
from gencli.core.request import Beams, Drafting, Guidance
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from tests.engine.harness import engine, generate, request
from tests.models.tiny_models import base
from tests.sham import Fault, sham_device
from tests.slow.engine.test_device_decoder import saved
from tests.speculative.cases import LETTERS, WIDTH, outcomes

FULL = {
    "allocator": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "driver": lambda: torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
    "cublas": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    "cudnn": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "triton": lambda: RuntimeError("Triton Error [CUDA]: out of memory"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(1)
    made = tmp_path_factory.mktemp("llama")
    hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**base(vocab_size=WIDTH))).save_pretrained(made)
    return made


def load(folder, device):
    return DecoderRunner.load(saved(folder), dtype="float32", device=device, max_lanes=12)


def everything():
    """Requests that together run what may fail."""
    chain = "repetition=1.1 | temperature=0.8 | top_p=0.9"
    drafting = Drafting("model", 3)
    return [
        request("a" * 252, key="plain", chain=chain, max_tokens=8),
        request(
            "abcabc", key="drafts", chain=f"{LETTERS} | temperature=0.5", drafting=drafting, max_tokens=8
        ),
        request("abc", key="guided", chain=chain, guidance=Guidance(1.7, tuple(b"cold ")), max_tokens=8),
        request("b" * 30, key="other", chain=f"{LETTERS} | mirostat:version=2,tau=2,eta=0.1", max_tokens=8),
        request("abc", key="beams", chain=LETTERS, beams=Beams(2), max_tokens=6),
    ]


def options(folder, device):
    draft = AdaptiveDrafter(ModelDrafter(load(folder, device)), name="model", clock=lambda: 0.0)
    return {"drafter": draft, "max_batch": 6, "step_tokens": 24}


PLACES = {
    "forward pass": "gencli/models/decoder/decoder.py:__call__",
    "keys and values": "gencli/models/kv/lane_buffers.py:_grow",
    "chain and draw": "gencli/engine/engine.py:run",
    "the draw": "processors/kernels/",
    "a draft model": "gencli/speculative/draft_model.py:propose",
    "guidance": "gencli/engine/guidance.py",
    "a beam's lane": "gencli/models/model_runner.py:fork",
    "admission": "gencli/engine/engine.py:_admit",
    "what a step commits": "processors/history.py:append",
    "the reading": "gencli/engine/step_runner.py:_read",
}


@pytest.fixture(scope="module")
def here(folder):
    """What everything comes to on a CPU."""
    return outcomes(everything(), runner=load(folder, "cpu"), **options(folder, "cpu"))[0]


def test_what_does_not_fit_alone_fails_alone(folder):
    with sham_device() as seen:
        on = engine(runner=load(folder, "cuda"), max_batch=1)
        seen.faults.append(Fault(FULL["driver"], at=PLACES["keys and values"]))
        first, second = generate([request(c * 9, key=c, max_tokens=4) for c in "ab"], on=on).values()
    assert isinstance(first, Error)
    assert "memory is full" in first.message
    assert not isinstance(second, Error)
