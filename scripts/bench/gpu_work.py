"""How long given work takes on a GPU at least."""

from __future__ import annotations

from dataclasses import dataclass

from gencli.models.gpus import Gpu

_WARP = 32


@dataclass(frozen=True, slots=True)
class GpuWork:
    """Work of one or several kernels in a row: bytes of memory read or written, and kernels, of these `own`.

    For all threads of all kernels: `instructions`, of these `float64`, and floating-point operations of
    matrix products, `flops`. `alone`: instructions, one after the other, of the program that ends last.
    """

    bytes: float
    kernels: int = 1
    own: int = 0
    instructions: float = 0
    float64: float = 0
    flops: float = 0
    alone: float = 0

    def seconds(self, gpu: Gpu, *, is_graph: bool = True) -> float:
        """Return the least time on a GPU: kernels wait for each other, and each is bound by its slowest part.

        Without a graph the host's launches take that time if they are slower than the kernels.
        """
        cycles = gpu.sms * gpu.clock
        busy = max(
            self.bytes / gpu.read,
            self.instructions / (4 * _WARP * cycles),  # four schedulers, each one warp's instruction a cycle
            self.float64 / (gpu.fp64 * cycles),
            self.flops / gpu.matmul,
        )
        last = self.alone * gpu.turn / gpu.clock
        on_device = busy + last + self.kernels * (gpu.graph_launch + gpu.ramp)
        on_host = (self.kernels - self.own) * gpu.launch + self.own * gpu.own_launch
        return on_device if is_graph else max(on_device, on_host)
