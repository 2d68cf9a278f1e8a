"""The layers of a decoder on CUDA: one launch between two matrix products, and two for attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from gencli.models.decoder.attention import DevicePlan
from gencli.models.decoder.kernels.gate import gated
from gencli.models.decoder.kernels.norm import added, added_normed, normed
from gencli.models.decoder.kernels.rotary import rotate_and_store
from gencli.models.decoder.layers import Experts, Layer, Pass
from gencli.models.decoder.norms import Norm
from gencli.models.decoder.stacked_experts import StackedExperts

__all__ = ["fused_layers"]


@dataclass(frozen=True, slots=True)
class _Sum:
    """Residual sum not yet computed, states + scale * post(more); the launch of the next norm computes it."""

    states: Tensor
    more: Tensor | None = None
    post: Norm | None = None
    scale: float = 1.0

    def value(self) -> Tensor:
        """Return the states [N, H]."""
        return self.states if self.more is None else added(self.states, self.more, self.post, self.scale)

    def value_and_norm(self, norm: Norm | None) -> tuple[Tensor, Tensor]:
        """Return the states [N, H], and their norm; without a norm the states twice."""
        if norm is None:
            states = self.value()
            return states, states
        if self.more is None:
            return self.states, normed(self.states, norm)
        return added_normed(self.states, self.more, self.post, self.scale, norm)


def _through(
    layer: Layer, given: _Sum, buffer: Tensor, step: Pass[DevicePlan], wanted: Tensor | None
) -> _Sum:
    """Return what the layer leaves, of the tokens `wanted` [R]; None stands for all of them."""
    before, after, mlp_before, mlp_after = layer.norms
    states, given_norm = given.value_and_norm(before)
    mixed = _attended(layer, given_norm, buffer, step, wanted)
    if wanted is not None:
        states = states[wanted]
    states, mlp_norm = _Sum(states, mixed, after, layer.residual_scale).value_and_norm(mlp_before)
    return _Sum(states, _mlp(layer, mlp_norm), mlp_after, layer.residual_scale)


def _attended(
    layer: Layer, states: Tensor, buffer: Tensor, step: Pass[DevicePlan], wanted: Tensor | None
) -> Tensor:
    """Return what attention adds, [R, H], for normalized `states` [N, H]; write keys and values."""
    block = layer.attention
    spec = block.spec
    made = block.qkv(states).view(len(states), -1, spec.head_dim)
    rope, norms = spec.layer_ropes[block.index], (block.query_norm, block.key_norm)
    queries = rotate_and_store(
        made,
        buffer,
        step.plan.cells,
        None if rope is None else step.ropes[rope],
        None if norms[0] is None or norms[1] is None else (norms[0], norms[1]),
        is_whole=spec.qk_norm == "whole",
    )
    mixed = step.plan.attend(queries, buffer, **block.scoring)
    return block.out(mixed if wanted is None else mixed[wanted])


def _mlp(layer: Layer, states: Tensor) -> Tensor:
    """Return what the layer's feed-forward block adds, [N, H], for normalized `states` [N, H]."""
    block = layer.mlp
    if isinstance(block, Experts | StackedExperts):
        return block(states)
    spec = layer.attention.spec
    return block.down(gated(block.gate_up(states), spec.activation, spec.gate_limit))


def fused_layers(
    layers: Sequence[Layer],
    norm: Norm,
    states: Tensor,
    step: Pass[DevicePlan],
    buffers: Sequence[Tensor],
    wanted: Tensor | None,
    *,
    early: dict[int, Tensor] | None,
    places: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the states [R, H] of the tokens `wanted` [R] behind the final norm, and those of `places` [S].

    `early` gets the states [R, H] in front of each layer that it names.
    """
    given = _Sum(states)
    for number, (layer, buffer) in enumerate(zip(layers, buffers, strict=True)):
        if early and number in early:
            given = _Sum(given.value())
            early[number] = given.states if wanted is None else given.states[wanted]
        is_last = number == len(layers) - 1 and places is None
        given = _through(layer, given, buffer, step, wanted if is_last else None)
    _, found = given.value_and_norm(norm)
    if places is None:
        return found, None
    return found if wanted is None else found[wanted], found[places]
