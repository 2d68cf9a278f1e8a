"""Make a model of the first layers of another one, sharing its weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from gencli.errors import ModelError

__all__ = ["first_count", "first_layers"]


def first_layers(model: Any, count: int | None = None) -> Any:
    """Return a model of the first `count` layers, by default half of them (rounded up).

    All weights are shared, final norm and vocabulary projection included; `model` is not changed. Raises
    ModelError for an architecture without a single list of layers, and for a count outside
    1..num_layers - 1.
    """
    config = copy.deepcopy(model.config)
    total = config.num_hidden_layers if hasattr(config, "num_hidden_layers") else 0
    base = model.base_model
    name = next((name for name, part in base.named_children() if _is_layer_list(part, total)), None)
    if name is None or base is model:
        raise ModelError(
            f"early-exit: {config.model_type} has no plain row of layers to leave.",
            hint="Draft with ngram, suffix or a smaller model.",
        )
    count = first_count(count, total)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    inner = _shallow_copy(base, config)
    inner._modules[name] = nn.ModuleList(list(getattr(base, name))[:count])
    outer = _shallow_copy(model, config)
    outer._modules[model.base_model_prefix] = inner
    return outer


def first_count(count: int | None, total: int) -> int:
    """Return how many of `total` layers are the first ones, by default half of them (rounded up).

    Raises ModelError for a count outside 1..total - 1.
    """
    count = -(-total // 2) if count is None else count
    if not 1 <= count < total:
        raise ModelError(
            f"early-exit:{count}: the model has {total} layers, so 1 to {total - 1} can be the first."
        )
    return count


def _is_layer_list(part: Any, total: int) -> bool:
    return isinstance(part, nn.ModuleList) and len(part) == total


def _shallow_copy(module: Any, config: Any) -> Any:
    """Return a copy of the module with its own table of submodules, which are shared."""
    frame = copy.copy(module)
    frame._modules = dict(module._modules)
    frame.config = config
    return frame
