"""Products on CUDA with narrow weights: values by the interpreter, and the weights are those of the CPU."""

from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.product_maker import FixedInt4Product, FixedInt8Product, check_narrow
from gencli.models.device import pick_dtype
from tests.helpers.gguf_files import write_model
from tests.models.gguf.test_kept import model
from tests.models.native import load_native
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


PROMPTS = (5, 6, 7, 8, 9, 10, 11), (30, 31)


def logits(runner: DecoderRunner) -> torch.Tensor:
    first = tuple(Feed(lane, 0, tokens) for lane, tokens in enumerate(PROMPTS))
    more = tuple(Feed(lane, len(tokens), (3,)) for lane, tokens in enumerate(PROMPTS))
    return torch.cat([runner.forward(StepPlan(feeds)).cpu() for feeds in (first, more)])


def test_a_gguf_file_keeps_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(), "Q4_0")
    expected = logits(load_native(path, "cpu"))
    with sham_device():
        runner = load_native(path, CUDA)
        made = logits(runner)
    assert "fixed-int4" in runner.spec.kernels
    assert runner.spec.dtype == torch.bfloat16
    assert (made.float() - expected).norm() < 0.1 * expected.norm()


def test_a_decode_step_waits_for_nothing(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with sham_device() as seen:
        runner = load_native(tmp_path, CUDA, quantize="int4")
        runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
        seen.clear()
        runner.forward(StepPlan((Feed(0, 3, (4,)),)))
    assert not seen.waits
    assert seen.launches["fixed_product"] == 4 * runner.spec.num_layers + 1


def test_a_product_counts_the_bytes_of_codes_and_scales() -> None:
    for kind, format_, nbytes in (
        (FixedInt8Product, Int8Weights, 64 * 96 + 4 * 64),
        (FixedInt4Product, Int4Weights, 64 * 48 + 4 * 64 * 3),
    ):
        made = kind(format_.of((64, 96), [matrix(64, 96)]))  # type: ignore[arg-type]
        assert made.nbytes == nbytes, kind
        assert made(matrix(5, 96).bfloat16()).shape == (5, 64), kind


def test_states_between_codes_have_16_bits_on_a_gpu() -> None:
    kinds = {
        stored: pick_dtype("auto", device=CUDA, stored=stored, is_quantized=True)[0]
        for stored in ("BF16", "F16", "F32", "U8", "Q4_K")
    }
    assert kinds.pop("F16") == torch.float16
    assert {*kinds.values()} == {torch.bfloat16}
    with pytest.raises(UsageError, match=r"computed in bfloat16 or float16 on cuda:0"):
        pick_dtype("float32", device=CUDA, stored="U8", is_quantized=True)


def test_a_device_without_the_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="run on a CPU and on CUDA, and the device is mps"):
        check_narrow(8, torch.float16, torch.device("mps"))
    with sham_device():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        check_narrow(4, torch.float16, CUDA)
        with pytest.raises(ModelError, match="cuda:0 does not compute bfloat16") as found:
            check_narrow(4, torch.bfloat16, CUDA)
        assert found.value.hint == "Give `dtype` = float16."
        monkeypatch.setattr(torch.version, "hip", "7.0")
        with pytest.raises(ModelError, match="take a GPU of NVIDIA and the package triton"):
            check_narrow(8, torch.float16, CUDA)
