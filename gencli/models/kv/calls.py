"""Call any causal language model for the logits of chosen positions."""

from __future__ import annotations

import inspect
from functools import cache as cached
from typing import Any

import torch
from torch import Tensor

__all__ = ["LogitsCall", "logits_width", "num_ids"]

# Names of the argument that takes a cache: of transformers >= 5.24, of earlier attention models, of earlier
# recurrent models, and of RWKV.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


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
    """Call a model so that only the wanted columns reach the vocabulary projection.

    `takes_cache`: the signature names a `Cache` of transformers.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        parameters = inspect.signature(model.forward).parameters
        self._can_slice = "logits_to_keep" in parameters
        self.takes_positions = "position_ids" in parameters
        named = next((name for name in _CACHE_NAMES if name in parameters), None)
        self.takes_cache = named in ("cache", "past_key_values")
        self._cache_name = named or _usual_cache_name()

    def __call__(self, wanted: int | Tensor, *, cache: Any = None, **inputs: Any) -> Any:
        """Return the model's outputs; `outputs.logits` is [B, W, V].

        `wanted` is W, the number of last columns, or a tensor [W] of column indices. `cache` goes to the
        argument of the model that takes one.
        """
        if cache is not None:
            inputs[self._cache_name] = cache
        if not isinstance(wanted, Tensor) and wanted > 1 and self._shares_keys():
            ids = inputs["input_ids"]
            wanted = torch.arange(ids.shape[1] - wanted, ids.shape[1], device=ids.device)
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

    def _shares_keys(self) -> bool:
        """Return whether layers use the keys and values of earlier ones.

        Such layers of Gemma 4 compute only the last W columns. Without a mask they align several of them with
        the first keys, unless the attention is named "sdpa". Asked for column indices they compute all.
        """
        return bool(getattr(self._model.config.get_text_config(decoder=True), "num_kv_shared_layers", 0))

    def cache_of(self, outputs: Any) -> Any:
        """Return the cache in the model's outputs; None if there is none."""
        names = _CACHE_NAMES[0], self._cache_name
        return next((one for name in names if (one := outputs.get(name)) is not None), None)

    def no_rows(self) -> Tensor:
        """Return the logits of a step without wanted rows: [0, V]."""
        return torch.empty(0, logits_width(self._model), dtype=self._model.dtype, device=self._model.device)


@cached
def _usual_cache_name() -> str:
    """Return the name that the installed transformers has, for models that take any argument."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    return "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
