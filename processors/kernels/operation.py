"""`operation`: one PyTorch operation with a plain implementation and a Triton kernel for CUDA."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

__all__ = ["operation"]

_library: Any = torch.library.Library("gencli", "DEF")  # type: ignore[no-untyped-call]


def operation(schema: str, plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the operation `gencli::<name>` of a schema such as `scale(Tensor(a!) x, float by) -> ()`.

    `plain` is its reference in PyTorch, used on every device without a kernel. `kernel` names the function
    that launches one Triton kernel for it, as `module:function`; it is imported at the first call on CUDA.
    Arguments that are changed in place are marked in the schema; a result never is an argument. Where an
    operation is recorded, as in a CUDA graph, it counts as one launch.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, plain, "CPU")
    _library.impl(name, _on_cuda(plain, kernel), "CUDA")
    found: Callable[..., Any] = getattr(torch.ops.gencli, name).default
    return found


def _on_cuda(plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the implementation for CUDA: the kernel on the device of its tensors, or `plain`."""
    launch: Callable[..., Any] | None = None

    def run(*given: Any) -> Any:
        nonlocal launch
        if launch is None:
            module, _, function = kernel.partition(":")
            launch = getattr(import_module(module), function) if find_spec("triton") else plain
        device = next(one.device for one in given if isinstance(one, Tensor))
        if device.index == torch.cuda.current_device():
            return launch(*given)
        with torch.cuda.device(device):  # Triton launches on the current device
            return launch(*given)

    return run
