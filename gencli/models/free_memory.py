"""The memory that a process can still use, within the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import torch

from gencli.errors import ModelError
from processors.machine_faults import is_out_of_memory

__all__ = ["free_memory", "refusing_full"]

_UNIFIED = ("memory.max", "memory.current")
_OLDER = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_CACHED = ("active_file", "inactive_file", "total_active_file", "total_inactive_file")


def free_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the free bytes on a device; None if the system does not say.

    On the CPU that is the least of the machine's available memory and of what the control groups of this
    process allow (Linux, both versions). Files that the system keeps in memory count as free, because it
    drops them on demand. On CUDA, so does what PyTorch's allocator holds for this process and nothing uses.
    `root` is the folder of proc and sys.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    known = [*_available(root), *_left_in_groups(root)]
    if known:
        return max(0, min(known))
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


@contextmanager
def refusing_full(device: torch.device) -> Iterator[None]:
    """Raise ModelError if the memory runs out while a model is loaded to a device within."""
    try:
        yield
        return
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # outside the except block, whose traceback would keep tensors alive
    raise ModelError(
        f"The model does not fit into the memory of {device}.",
        hint="Another process may have taken memory meanwhile. A smaller `dtype` or `quantize` needs less.",
    )


def _available(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        yield from (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield limit less use of each group of this process, parents included."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for number, kinds, name in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if number == "0":
            base, files = root / "sys/fs/cgroup", _UNIFIED
        elif "memory" in kinds.split(","):
            base, files = root / "sys/fs/cgroup/memory", _OLDER
        else:
            continue
        # In a container the group's own folder may be mounted as the root.
        inner = PurePosixPath(name.strip("/"))
        for folder in {base, *(base / part for part in (inner, *inner.parents) if ".." not in part.parts)}:
            yield from _left(folder, *files)


def _left(folder: Path, limit: str, use: str) -> Iterator[int]:
    with suppress(OSError, ValueError):
        most, used = (int((folder / file).read_text(encoding="ascii")) for file in (limit, use))
        yield most - used + _cached(folder)


def _cached(folder: Path) -> int:
    """Return the bytes of files in a group's memory."""
    lines = map(str.split, (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    counts = {line[0]: line[1] for line in lines if len(line) == 2}
    total = [int(counts[key]) for key in _CACHED[2:] if key in counts]
    return sum(total or [int(counts[key]) for key in _CACHED[:2] if key in counts])
