"""A mixture of experts on CUDA, in which the device looks up which experts compute a row."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gencli.models.decoder.kernels.gate import gated
from gencli.models.decoder.kernels.routing import mixed, routed
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.grouped import GroupedProduct
from gencli.models.decoder.spec import Activation, ExpertSpec

__all__ = ["StackedExperts"]


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """A mixture of experts whose weights are two stacks: gates and up [E, 2 * I, H], and down [E, H, I].

    Six launches, of sizes that depend on shapes alone. The host waits for none. But for the router, a row has
    the same bits among any other rows.
    """

    router: Product
    gate_up: GroupedProduct
    down: GroupedProduct
    spec: ExpertSpec
    activation: Activation
    gate_limit: float = 0.0

    def __call__(self, states: Tensor) -> Tensor:
        """Return [N, H] for `states` [N, H]."""
        used = self.spec.used
        block = min(product.rows_of_tile(len(states) * used) for product in (self.gate_up, self.down))
        shares, lists, tiles = routed(self.router(states), used, self.spec.is_normalized, block)
        made = gated(self.gate_up(states, lists, tiles, block, used), self.activation, self.gate_limit)
        return mixed(self.down(made, lists, tiles, block, 1), shares)
