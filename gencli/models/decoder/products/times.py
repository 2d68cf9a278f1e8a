"""Times of the product kernels on this machine: measured once, kept in the user's cache."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from gencli.files import read_file, replaced
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.int8 import Int8Weights

__all__ = ["KernelTimes", "Seconds", "Sizes", "event_seconds", "host_seconds", "measure", "read_times"]

Seconds = Callable[[Callable[[], object]], float]

_MAX_BYTES = 1_000_000  # of the cache file
_MAX_SHAPES = 1000
# Bytes of weights that are multiplied; the time grows in proportion to them. On a GPU small ones differ.
_SLICE = {"cpu": 16 * 2**20, "cuda": 256 * 2**20}
# Bytes read in between, so that weights come from memory as in a decode step, and a GPU has work meanwhile.
_OTHERS = {"cpu": 32 * 2**20, "cuda": 256 * 2**20}
_CPU = torch.device("cpu")
_ROUNDS = 4
_ISA = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a product: `rows` rows with a weight [out, in] of a number format."""

    dtype: torch.dtype
    outputs: int
    inputs: int
    rows: int

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.outputs}x{self.inputs}, {self.rows} rows"


class KernelTimes:
    """Microseconds of each kernel by shape, of one device. `path` None: nothing is kept.

    `seconds` calls a function that computes there, and returns the time that the device took.
    """

    def __init__(
        self,
        path: Path | None = None,
        entries: Mapping[str, Mapping[str, float]] | None = None,
        *,
        device: torch.device = _CPU,
        seconds: Seconds | None = None,
    ) -> None:
        self._path, self._entries, self._is_changed = path, dict(entries or {}), False
        self._device = device
        self._seconds = seconds or (host_seconds if device.type == "cpu" else event_seconds)

    @property
    def entries(self) -> Mapping[str, Mapping[str, float]]:
        """The times by shape, as text."""
        return self._entries

    def of(self, sizes: Sizes, kernels: Sequence[type[Product]]) -> Mapping[str, float]:
        """Return the microseconds of each kernel; they are measured if they are unknown."""
        known = self._entries.get(str(sizes), {})
        if not {kernel.kernel for kernel in kernels} <= known.keys():
            self._entries[str(sizes)] = known = measure(sizes, kernels, self._device, self._seconds)
            self._is_changed = True
        return known

    def write(self) -> None:
        """Write new times to the user's cache. A failed write is ignored: they are measured again."""
        if self._path is None or not self._is_changed:
            return
        machines = _read(self._path)
        machines[_machine(self._device)] = dict(list(self._entries.items())[-_MAX_SHAPES:])
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(self._path, pipes=False) as file:
                file.write(json.dumps(machines, indent=1).encode())


def read_times(device: torch.device = _CPU) -> KernelTimes:
    """Return the times of a CPU or GPU of this machine in the user's cache; none if it cannot be read."""
    from platformdirs import user_cache_path

    path = user_cache_path("gencli") / "kernels.json"
    entries = _read(path).get(_machine(device))
    return KernelTimes(path, entries if _is_table(entries) else None, device=device)


def host_seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def event_seconds(run: Callable[[], object]) -> float:
    """Return how long a GPU computes what a call launches, if it has work until then."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


def measure(
    sizes: Sizes, kernels: Sequence[type[Product]], device: torch.device, seconds: Seconds
) -> dict[str, float]:
    """Return the microseconds of each kernel, the best of a few calls in turns.

    Only a slice of a large weight is multiplied; the time of the whole is in proportion.
    """
    row_bytes = sizes.inputs * sizes.dtype.itemsize
    outputs = max(1, min(sizes.outputs, _SLICE[device.type] // row_bytes))
    weight: Any = torch.ones(outputs, sizes.inputs, dtype=sizes.dtype, device=device)
    if sizes.dtype == torch.int8:
        weight = Int8Weights(weight, torch.ones(outputs, device=device))
    products = {kernel.kernel: kernel(weight) for kernel in kernels}
    is_float = sizes.dtype.is_floating_point
    dtype = sizes.dtype if is_float else torch.float32
    given = torch.ones(sizes.rows, sizes.inputs, dtype=dtype, device=device)
    others = torch.zeros(_OTHERS[device.type] // 4, device=device)
    best = dict.fromkeys(products, float("inf"))
    # An event is one of the current device, which another one's work does not delay.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        for round_ in range(_ROUNDS + 1):  # the first one warms up
            for name, product in products.items():
                others.sum()
                spent = seconds(partial(product, given))
                if round_:
                    best[name] = min(best[name], spent)
    whole = sizes.outputs / outputs
    return {name: round(seconds * whole * 1e6, 1) for name, seconds in best.items()}


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_file(path, _MAX_BYTES))
        return found if isinstance(found, dict) else {}
    return {}


def _is_table(entries: Any) -> bool:
    return isinstance(entries, dict) and all(
        isinstance(times, dict) and all(isinstance(one, int | float) for one in times.values())
        for times in entries.values()
    )


def _machine(device: torch.device) -> str:
    """Return what decides the times: processor, PyTorch, threads, and variables that limit instructions."""
    if device.type == "cuda":
        return ", ".join((torch.cuda.get_device_name(device), f"torch {torch.__version__}", *_triton()))
    found: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    limits = [f"{name}={os.environ[name]}" for name in _ISA if name in os.environ]
    about = (found.get("cpu_name") or platform.processor(), f"{found.get('num_logical_cores')} cores")
    return ", ".join(
        map(str, (*about, f"torch {torch.__version__}", f"{torch.get_num_threads()} threads", *limits))
    )


def _triton() -> list[str]:
    """Return Triton's release; none where it is not installed, or not under this name."""
    with suppress(PackageNotFoundError):
        return [f"triton {version('triton')}"]
    return []
