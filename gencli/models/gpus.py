"""GPUs by name: their memory, bandwidth and rates.

The figures are the makers', but for the share of the bandwidth that reads reach, and the times of a launch:
`gencli bench gpu` measures those. Imports no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gencli.errors import UsageError

_GIB = 2**30
_HELD = 0.015  # share of the memory that the driver keeps: a program finds 23.64 of 24 GiB, 79.1 of 80


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: memory as it is sold, bandwidth in bytes/s as the maker states it, clock in Hz (boost).

    `matmul` is in bfloat16 FLOP/s (dense). `fp64` are the float64 operations of one multiprocessor in a
    cycle. `read_share` of the bandwidth is what a kernel that only reads reaches. `turn`: cycles from one
    instruction of a warp to the next where few warps run (assumed). In seconds, `launch` is the
    host's time of an eager launch by PyTorch, `own_launch` of one of our kernels from Python, `graph_launch`
    the time between two kernels of a recorded graph, and `ramp` what a kernel takes beside its bytes, while
    its threads start and end.
    """

    name: str
    gib: int
    bandwidth: float
    sms: int
    clock: float
    fp64: int
    matmul: float
    read_share: float = 0.9
    turn: float = 3
    launch: float = 5e-6
    own_launch: float = 20e-6
    graph_launch: float = 1.3e-6
    ramp: float = 2e-6

    @property
    def memory(self) -> int:
        """The bytes that a program finds."""
        return memory_named(f"{self.gib}GB")

    @property
    def read(self) -> float:
        """Bytes/s that a kernel reaches that only reads."""
        return self.bandwidth * self.read_share


_ALL = (
    Gpu("RTX 3090", 24, 936e9, 82, 1.70e9, 2, 71e12),
    Gpu("RTX 4090", 24, 1008e9, 128, 2.52e9, 2, 165e12),
    Gpu("RTX 5090", 32, 1792e9, 170, 2.41e9, 2, 210e12),
    Gpu("L40S", 48, 864e9, 142, 2.52e9, 2, 362e12),
    Gpu("L4", 24, 300e9, 58, 2.04e9, 2, 121e12),
    Gpu("A100 40GB", 40, 1555e9, 108, 1.41e9, 32, 312e12),
    Gpu("A100", 80, 2039e9, 108, 1.41e9, 32, 312e12),
    Gpu("H100 PCIe", 80, 2039e9, 114, 1.76e9, 64, 756e12),
    Gpu("H100 NVL", 94, 3938e9, 132, 1.79e9, 64, 835e12),
    Gpu("H100", 80, 3350e9, 132, 1.98e9, 64, 989e12),
    Gpu("H200", 141, 4800e9, 132, 1.98e9, 64, 989e12),
    Gpu("B200", 180, 8000e9, 148, 1.97e9, 64, 2250e12),
)
GPUS = {gpu.name: gpu for gpu in _ALL}


def gpu_named(name: str) -> Gpu:
    """Return the GPU of a name such as "RTX 4090", "h200" or "NVIDIA H100 80GB HBM3". Raises UsageError."""
    words = _words(name)
    for key in sorted(GPUS, key=len, reverse=True):  # "H100 PCIe" before "H100"
        if words >= _words(key) and "laptop" not in words:
            return GPUS[key]
    raise UsageError(f"{name[:60]!r} is not in the table of GPUs.", hint=f"Known are {', '.join(GPUS)}.")


def memory_named(text: str) -> int:
    """Return the bytes that a program finds on a GPU of a name, or of a size such as "24GB" as it is sold.

    Raises UsageError for anything else.
    """
    if size := re.fullmatch(r"\s*(\d{1,4}(?:\.\d+)?)\s*gi?b?\s*", text.lower()):
        return int(float(size[1]) * _GIB * (1 - _HELD))
    return gpu_named(text).memory


def _words(text: str) -> set[str]:
    return set(re.findall(r"rtx|[a-z0-9]+", text.lower()))
