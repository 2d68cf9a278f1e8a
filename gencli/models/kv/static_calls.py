"""Decode steps of a model of transformers in static shapes, which graphs can replay."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.backend import EXPERTS_ON_HOST, SPREAD
from gencli.models.kv.cache import LaneCache
from gencli.models.kv.calls import LogitsCall
from gencli.models.kv.masks import static_masks
from gencli.models.kv.padded import ForwardBatch
from gencli.models.kv.static_steps import StaticInputs, StaticSteps, StepRows, roomy, step_rows
from gencli.models.longrope import rope_switches, static_factors
from processors.graphs import Graphs

__all__ = ["StaticCalls", "why_not_static"]

_OWN_LONG_ROPE = {"phimoe"}  # whose rotary module is not that of the library
_GROUPED = (9, 10)  # compute capabilities, major, with products of groups whose sizes stay on the device


class StaticCalls:
    """Runs steps of one token a feed in a LaneCache, which `graphs` record.

    Steps with drafts are not static here: a lane's keys and values would be copied once for each of its rows.
    Keys and values are read in place where few rows are idle, else copied by the model's pass. `context` is
    the maximum number of tokens in a lane.
    """

    def __init__(
        self, call: LogitsCall, cache: LaneCache, graphs: Graphs, device: torch.device, context: int,
        switches: tuple[int, ...],
    ) -> None:  # fmt: skip
        self._call, self._cache, self._context, self._switches = call, cache, context, switches
        self._steps = StaticSteps(graphs, device, switches)

    def __call__(self, feeds: Sequence[Feed], ids: Tensor | None = None) -> Tensor:
        """Return the logits [R, V], a new tensor; `feeds` have buffer rows as lanes.

        `ids` [R] on the device replace the tokens.
        """
        store, rows = self._cache.store, self.rows(feeds)
        room = rows.num_held, self.capacity(max(feed.end for feed in feeds))
        store.reserve(*room)
        placed = tuple(buffer.data for buffer in store.buffers)
        capacity = max(placed[0].shape[2], room[1])
        return self._steps(
            feeds, rows, placed, capacity, lambda inputs: self._run(inputs, rows.in_place, room), ids
        )

    def rows(self, feeds: Sequence[Feed]) -> StepRows:
        """Return the rows of a step; `feeds` have buffer rows as lanes."""
        rows = self._cache.store.rows
        return step_rows(feeds, rows.spare, most=len(rows))

    def capacity(self, length: int) -> int:
        """Return the capacity (tokens) of buffers for lanes of `length` tokens."""
        return roomy(length, self._context)

    def free(self) -> None:
        """Drop the graphs, whose buffers are freed."""
        self._steps.free()

    def _run(self, inputs: StaticInputs, in_place: bool, room: tuple[int, int]) -> Tensor:
        """Run the model on static tensors; return the logits [rows, V]."""
        positions = inputs.positions
        self._cache.batch = ForwardBatch(
            feeds=(),
            ids=inputs.ids[:, None],
            positions=positions[:, None],
            lanes=slice(0, len(positions)) if in_place else inputs.rows,
            room=room,
            start=None,
            kv_length=inputs.end,
            wanted=1,
            target=(inputs.rows, positions),
            source=None,
        )
        batch = self._cache.batch
        with ExitStack() as stack:
            stack.enter_context(static_masks())
            if inputs.factors is not None:
                stack.enter_context(static_factors(inputs.factors[:, None], self._switches))
            outputs = self._call(1, input_ids=batch.ids, position_ids=batch.positions, cache=self._cache)
        logits: Tensor = outputs.logits  # [rows, 1, V]
        return logits.flatten(0, 1)


def why_not_static(model: Any) -> str:
    """Return why the decode steps of a transformers model have no static shapes; "" if they may have.

    They have where transformers declares that it compiles the model as one graph, if nothing that the model
    is given here makes it read values on the host.
    """
    config = model.config.get_text_config(decoder=True)
    if model.tp_size is not None or getattr(model, "hf_device_map", None):
        return SPREAD
    if not type(model).__module__.startswith("transformers.models."):
        return "the model's code is its own"
    if not model._can_compile_fullgraph:
        return f"transformers does not compile {config.model_type} models as one graph"
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and not quantizer.is_compileable:
        return "products with weights in this format are not compiled by transformers"
    if _reads_lengths(model, config):
        return "its rotary factors follow the longest text of a step"
    return EXPERTS_ON_HOST if _reads_experts(model) else ""


def _reads_lengths(model: Any, config: Any) -> bool:
    """Return whether a rotary module reads on the host how long the longest text of a step is."""
    kinds = [getattr(module, "rope_type", "") for module in model.modules()]  # some have one a layer type
    is_dynamic = any("dynamic" in (kind.values() if isinstance(kind, dict) else [kind]) for kind in kinds)
    return is_dynamic or (config.model_type in _OWN_LONG_ROPE and bool(rope_switches(config)))


def _reads_experts(model: Any) -> bool:
    """Return whether the host reads which experts are chosen."""
    for module in model.modules():
        if not hasattr(module, "_is_expert_parallel"):  # what transformers sets on all modules of experts
            continue
        kind = module.config._experts_implementation
        if kind != "batched_mm" and (kind != "grouped_mm" or not _groups(model.device, model.dtype)):
            return True
    return False


def _groups(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether products of groups leave the sizes of these on the device."""
    if device.type != "cuda":
        return True
    return dtype == torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in _GROUPED
