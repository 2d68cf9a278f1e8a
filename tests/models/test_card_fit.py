"""What fits a card: the largest batch and length are the last that fit, and smaller formats take more."""

from dataclasses import replace
from pathlib import Path

import torch

from gencli.models.files.model_card import Card, Weights, read_card
from gencli.models.model_memory import CONTEXT_BYTES, card_fits, lane_bytes, weight_bytes
from tests.models.cases import case
from tests.models.tiny_models import build_native

GIB = 2**30
CUDA = torch.device("cuda")


def card_of(folder: Path, **changes: object) -> Card:
    """A model with weights of 16 GiB in bfloat16, and keys and values of 2^17 numbers a token."""
    build_native("llama").save_pretrained(folder)
    found = read_card(folder)
    large = {"weights": Weights(16 * GIB, 8 * GIB, "BF16"), "kv_values": 2**17, "context": 2**15}
    return replace(found, **(large | changes))  # type: ignore[arg-type]


def test_the_largest_batch_and_length_are_the_last_that_fit(tmp_path: Path) -> None:
    card = card_of(tmp_path)
    for fit in card_fits(card, 24 * GIB, batch=2, tokens=4096):
        left = 24 * GIB - CONTEXT_BYTES - fit.need.weights - fit.need.step
        assert fit.max_batch is not None
        lanes = [lane_bytes(card, fit.max_batch + more, 4096, fit.kv_dtype, CUDA) or 0 for more in (0, 1)]
        assert lanes[0] <= left
        assert lanes[1] > left or fit.max_batch == 256
        assert fit.max_context is not None
        lanes = [lane_bytes(card, 2, fit.max_context + more, fit.kv_dtype, CUDA) or 0 for more in (0, 256)]
        assert lanes[0] <= left
        assert lanes[1] > left or fit.max_context == card.context
        assert fit.fits == (fit.max_batch >= 2)


def test_narrow_formats_leave_room_for_more(tmp_path: Path) -> None:
    found = card_fits(card_of(tmp_path), 24 * GIB, batch=1, tokens=8192)
    fits = {(one.quantize, one.kv_dtype): one for one in found}
    order = [("none", torch.bfloat16), ("none", torch.int8), ("int8", torch.bfloat16)]
    order += [("int4", torch.bfloat16), ("int4", torch.float8_e4m3fn)]
    batches = [fits[key].max_batch for key in order]
    assert batches == sorted(batches)  # type: ignore[type-var]
    assert len(fits) == 9
    assert len(set(batches)) == 5


def test_what_does_not_fit_has_room_for_no_text_and_lengths_of_a_state_are_unknown(tmp_path: Path) -> None:
    exact, *_, narrow = card_fits(card_of(tmp_path), 7 * GIB, batch=1, tokens=1024)
    assert (exact.fits, exact.max_batch, exact.max_context) == (False, 0, 0)
    assert narrow.fits
    (fit,) = card_fits(card_of(tmp_path, spec=None, kv_values=None), 24 * GIB, batch=1, tokens=1024)
    assert (fit.fits, fit.lane, fit.max_batch, fit.max_context) == (True, None, None, None)


def test_the_ends_of_a_model_of_four_bits_have_eight(tmp_path: Path) -> None:
    for is_tied in [True, False]:
        with case(is_tied):
            card = card_of(tmp_path)
            assert card.spec is not None
            spec = replace(card.spec, vocab_size=2**17, hidden=2**12, is_tied=is_tied)
            ends = 2**29 * (1 if is_tied else 2)
            need = weight_bytes(replace(card, spec=spec), torch.bfloat16, CUDA, "int4")
            assert need == (8 * GIB - ends) * 5 // 8 + ends
