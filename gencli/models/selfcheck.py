"""Check the KV lanes of a model once, at loading, against plain forward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.kv.calls import LogitsCall, num_ids
from gencli.models.kv.lengths import LaneLengths
from processors.machine_faults import is_out_of_memory
from processors.upload import upload

if TYPE_CHECKING:
    from gencli.models.lane_runner import Lanes

__all__ = ["LENGTH", "NUM_LANES", "SelfCheck", "fault_of"]

NUM_LANES, LENGTH = 3, 6  # lanes, and tokens per lane, of the check
# Tolerated error of logits relative to their spread, in float32 and in other formats. A token that sees
# another lane, or has a wrong position, changes the logits completely.
_EXACT, _ROUNDED = 1e-2, 0.25


class SelfCheck:
    """Compare lanes with one pass over two short texts without a cache: four small passes in all.

    The constructor raises whatever the model raises on the texts.
    """

    def __init__(self, model: Any) -> None:
        self._texts = _texts(model)
        with torch.inference_mode():
            inputs = {"input_ids": upload([list(text) for text in self._texts], model.device)}
            if LogitsCall(model).takes_positions:
                inputs["position_ids"] = torch.arange(LENGTH, device=model.device).expand(2, -1)
            self._expected: Tensor = model(use_cache=False, **inputs).logits.float()
        is_exact = model.dtype == torch.float32 and not getattr(model, "is_quantized", False)
        self._tolerance = _EXACT if is_exact else _ROUNDED

    @torch.inference_mode()
    def fault(self, lanes: Lanes, lengths: LaneLengths, *, decodes: bool = False) -> str:
        """Return the fault of empty lanes in a few words; "" for correct ones.

        Two lanes are fed texts of different length, drafts are truncated, a fork continues from an earlier
        position than its source, and several tokens are fed after a prompt. With `decodes` all lanes, which
        can roll back, are fed one token at last.
        """
        try:
            errors = self._errors(lanes, lengths)
            if decodes:
                errors.append(self._decode_error(lanes, lengths))
        except Exception as error:  # models raise exceptions of any type
            return fault_of(error)
        worst = max(errors)
        return f"its logits are off by {worst:.0%} of their spread" if worst > self._tolerance else ""

    def _errors(self, lanes: Lanes, lengths: LaneLengths) -> list[float]:
        first, second = self._texts
        # A model without rollback takes no drafts.
        drafts = second[:2] if lanes.can_rollback else ()
        steps = (
            (Feed(0, 0, first[:2], 2), Feed(1, 0, second[:4])),
            (Feed(0, 2, (first[2], *drafts), 1 + len(drafts)), Feed(1, 4, second[4:5])),
            (Feed(2, 3, first[3:], 3), Feed(1, 5, second[5:])),
        )
        own, other = self._expected
        expected = (
            torch.cat([own[:2], other[3:4]]),
            torch.cat([own[2:3], other[4:5]]),
            torch.cat([own[3:], other[5:]]),
        )
        found = []
        for number, feeds in enumerate(steps):
            if number == 2:
                lanes.fork(0, 2)
                lengths.fork(0, 2)
                if drafts:
                    lanes.truncate(2, 3)
                    lengths.truncate(2, 3)
            rows = lanes.forward(feeds)
            lengths.advance(StepPlan(feeds))
            rows = torch.cat([rows[:1], rows[-1:]]) if number == 1 else rows
            found.append(_error(rows.float(), expected[number]))
        return found

    def _decode_error(self, lanes: Lanes, lengths: LaneLengths) -> float:
        """Return the error of one token a lane, behind 3 or 5 tokens of its text."""
        (first, second), (own, other) = self._texts, self._expected
        feeds = (Feed(0, 3, first[3:4]), Feed(1, 5, second[5:]), Feed(2, 5, first[5:]))
        for feed in feeds:
            lanes.truncate(feed.lane, feed.start)
            lengths.truncate(feed.lane, feed.start)
        return _error(lanes.forward(feeds).float(), torch.cat([own[3:4], other[5:], own[5:]]))


def fault_of(error: Exception) -> str:
    """Return an exception of a model as one line. Raises ModelError if the memory is full."""
    if is_out_of_memory(error):
        raise ModelError("The model fits into the memory, but its first passes do not.") from error
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _texts(model: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two texts of ids from all over the vocabulary, without special ids of the configuration."""
    count, config = num_ids(model), model.config
    special = {
        value
        for part in (config, config.get_text_config(decoder=True))
        for name, values in vars(part).items()
        if "token" in name
        for value in (values if isinstance(values, list | tuple) else (values,))
    }
    plain = [token for token in range(min(count, 1000)) if token not in special] or [0]
    picked = [plain[(7 + 31 * index) % len(plain)] for index in range(2 * LENGTH)]
    return tuple(picked[:LENGTH]), tuple(picked[LENGTH:])


def _error(found: Tensor, expected: Tensor) -> float:
    """Return the largest error of rows [R, V] relative to their spread; 0 for rows that are not finite."""
    spread = (expected - expected.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-12)
    return float(((found - expected).norm(dim=-1) / spread).nan_to_num(0.0).max())
