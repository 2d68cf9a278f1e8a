"""In bfloat16 a text may depend on its company: that is said, and a run goes on with the same company."""

from dataclasses import replace

import pytest
import torch

from gencli.models.decoder.products.dense_products import can_pack, has_tiles
from gencli.models.model_runner import ModelSpec
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import Loaded, batch_notices
from gencli.text.tokenizer import ByteTokenizer
from tests.batch.test_command import cut

ROWS = [{"prompt": f"Row {n}", "max_tokens": 3} for n in range(6)]


SAID = "In bfloat16 a text may depend on what is computed beside it"


def tiny(dtype, *flags):
    return ("--model", "tiny", "--dtype", dtype, "--invariant", "off", "--seed", "1", *flags)


def resumed(bench, dtype, *flags, begun=("--max-batch", "2")):
    """A run that was cut after two rows and is gone on with."""
    bench.write(ROWS)
    cut(bench, 2, *tiny(dtype, *begun))
    return bench.run("--resume", "--no-timings", *tiny(dtype, *flags))


def test_a_runner_says_whether_texts_depend_on_their_company():
    cases = [
        ("cpu", torch.float32, True), ("cpu", torch.float16, True), ("cpu", torch.bfloat16, False),
        ("cuda", torch.float32, False), ("cuda", torch.float16, False), ("cuda", torch.bfloat16, False),
        ("mps", torch.float16, False),
    ]  # fmt: skip
    for device, dtype, is_promised in cases:
        spec = ModelSpec("m", 2, 8, torch.device(device), dtype)
        assert spec.is_batch_invariant == is_promised, (device, dtype, is_promised)


def test_it_is_said_what_helps_on_the_device():
    for device, cure in [("cpu", "`dtype` = float32"), ("cuda", "`invariant` = on")]:
        runner = FakeRunner(2)
        runner._spec = replace(runner.spec, device=torch.device(device), dtype=torch.bfloat16)
        (said,) = batch_notices(Loaded(runner, ByteTokenizer()))
        assert said.startswith(SAID), device
        assert cure in said, device


def test_a_batch_says_it_once(bench):
    bench.write(ROWS)
    for dtype, count in [("bfloat16", 1), ("float32", 0)]:
        assert bench.call(bench.input, *tiny(dtype)).err.count(SAID) == count, dtype


@pytest.mark.skipif(
    not can_pack(torch.bfloat16) or has_tiles(), reason="needs a CPU that computes bfloat16, without AMX"
)
def test_with_invariant_kernels_a_run_in_bfloat16_goes_on_in_other_company(bench):
    kept = ("--invariant", "on")
    done = resumed(bench, "bfloat16", "--max-batch", "4", *kept, begun=("--max-batch", "2", *kept))
    assert (done.code, SAID in done.err) == (0, False)


def test_a_run_does_not_go_on_in_another_number_format_that_auto_takes(bench, monkeypatch):
    """As on another machine, whose CPU computes bfloat16."""
    from gencli.batch import batch_setup as prepare

    bench.write(ROWS)
    cut(bench, 2, *tiny("auto"))
    monkeypatch.setattr(prepare, "pick_dtype", lambda *given, **named: (torch.bfloat16, ""))
    assert "number format was 'float32' and is 'bfloat16'" in bench.refused("--resume", *tiny("auto"))


def test_permission_needs_a_run_to_go_on_with(bench):
    assert "Add --resume" in bench.refused("--allow-other-batch", rows=ROWS)
