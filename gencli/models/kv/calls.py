"""Call any causal language model for the logits of chosen positions."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

__all__ = ["LogitsCall", "logits_width", "num_ids"]


def logits_width(model: Any) -> int:
    """Return the width of the logits (V)."""
    head = model.get_output_embeddings()
    return int(
        model.config.get_text_config(decoder=True).vocab_size if head is None else head.weight.shape[0]
    )


def num_ids(model: Any) -> int:
    """Return the number of token ids in the input embedding."""
    return int(model.get_input_embeddings().weight.shape[0])


class LogitsCall:
    """Call a model so that only the wanted columns reach the vocabulary projection."""

    def __init__(self, model: Any) -> None:
        self._model = model
        parameters = inspect.signature(model.forward).parameters
        self._can_slice = "logits_to_keep" in parameters
        self.takes_positions = "position_ids" in parameters
        self.takes_cache = "past_key_values" in parameters

    def __call__(self, wanted: int | Tensor, **inputs: Any) -> Any:
        """Return the model's outputs; `outputs.logits` is [B, W, V].

        `wanted` is W, the number of last columns, or a tensor [W] of column indices.
        """
        if isinstance(wanted, Tensor):
            return self._indexed(wanted, **inputs)
        if self._can_slice:
            # transformers reads 0 as "all positions", so a pass without wanted logits computes one.
            inputs["logits_to_keep"] = max(wanted, 1)
        outputs = self._model(use_cache=True, **inputs)
        outputs.logits = outputs.logits[:, outputs.logits.shape[1] - wanted :]
        return outputs

    def _indexed(self, wanted: Tensor, **inputs: Any) -> Any:
        if self._can_slice:
            return self._model(use_cache=True, logits_to_keep=wanted, **inputs)
        outputs = self._model(use_cache=True, **inputs)
        outputs.logits = outputs.logits[:, wanted]
        return outputs

    def no_rows(self) -> Tensor:
        """Return the logits of a step without wanted rows: [0, V]."""
        return torch.empty(0, logits_width(self._model), dtype=self._model.dtype, device=self._model.device)
