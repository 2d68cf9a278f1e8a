"""What runs a model is chosen from its configuration, said, and can be asked for."""

import json
from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.backend import choose_backend
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.native import load_native
from tests.models.tiny_models import build

LLAMA = build("llama").config.to_dict()
MAMBA = {"model_type": "mamba"}


def test_the_decoder_runs_what_it_knows_in_full() -> None:
    for options, config, is_native, reason in [
        ({"backend": "auto"}, LLAMA, True, "the decoder knows the family"),
        ({"backend": "native"}, LLAMA, True, "as asked"),
        ({"backend": "transformers"}, LLAMA, False, "as asked"),
        ({"backend": "auto"}, MAMBA, False, "models of type mamba are none of its families"),
        ({"backend": "auto"}, {**LLAMA, "more": 1}, False, "the configuration has 'more'"),
        ({"backend": "auto", "trust_remote_code": True}, LLAMA, False, "code of the model may run"),
        ({"backend": "auto", "is_spread": True}, LLAMA, False, "spread over several devices"),
    ]:
        with case(options, config, is_native, reason):
            spec, found = choose_backend(config=config, **options)
            assert (spec is not None) == is_native
            assert reason in found
    with pytest.raises(ModelError, match="own decoder cannot run this model: models of type mamba"):
        choose_backend("native", MAMBA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path)
    return tmp_path


def test_the_spec_says_what_was_loaded(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 9]}))
    spec = load_native(folder, dtype="bfloat16", backend="native: why").spec
    assert (spec.vocab_size, spec.context, spec.eos_ids) == (120, 1024, (3, 9))
    assert (spec.dtype, spec.dtype_reason, spec.backend) == (
        torch.bfloat16,
        "bfloat16: as asked",
        "native: why",
    )
    assert (spec.name, spec.can_rollback, spec.notices) == (str(folder), True, ())


def test_other_number_formats_give_about_the_same_logits(folder: Path) -> None:
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            step = StepPlan((Feed(0, 0, (5, 6, 7), 3),))
            exact = load_native(folder).forward(step)
            rounded = load_native(folder, dtype=str(dtype).removeprefix("torch.")).forward(step)
            assert rounded.dtype == torch.float32
            torch.testing.assert_close(rounded.float(), exact, atol=0.05 * float(exact.abs().max()), rtol=0)
    with pytest.raises(UsageError, match="No dtype is called 'int7'"):
        load_native(folder, dtype="int7")


def test_a_run_says_what_runs_its_model() -> None:
    assert load(ModelChoice("tiny")).runner.spec.backend == "native: the decoder knows the family"
    chosen = load(ModelChoice("tiny", backend="transformers")).runner.spec.backend
    assert chosen == "transformers: as asked"
