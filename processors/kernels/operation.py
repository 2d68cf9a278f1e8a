"""`operation` registers a PyTorch operation with a plain implementation and a Triton kernel for CUDA."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

__all__ = ["operation", "why_no_kernels"]

_library: Any = torch.library.Library("gencli", "DEF")  # type: ignore[no-untyped-call]


def operation(schema: str, plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the operation `gencli::<name>` of a schema such as `scale(Tensor(a!) x, float by) -> ()`.

    `plain` is its reference in PyTorch (the twin), used on a CPU and where Triton cannot run. `kernel` names
    the function that launches one Triton kernel, as `module:function`; it is imported at the first call on
    CUDA. The schema marks arguments that are changed in place; a result never aliases an argument. In a CUDA
    graph an operation counts as one launch.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, plain, "CPU")
    _library.impl(name, _on_cuda(plain, kernel), "CUDA")
    found: Callable[..., Any] = getattr(torch.ops.gencli, name).default
    return found


@cache
def why_no_kernels() -> str:
    """Return why Triton cannot launch kernels on the GPUs of this machine; "" if it can. Warns once.

    Triton compiles a part of itself at its first use, and needs a C compiler, the headers of Python and a
    cache folder for that.
    """
    reason = ""
    if torch.version.hip is not None:
        return "they are for GPUs of NVIDIA"
    if find_spec("triton") is None:
        reason = "the package triton is not installed"
    else:
        try:
            _ = import_module("triton.runtime.driver").driver.active
        except Exception as error:  # of any type
            reason = f"Triton does not start: {str(error).partition(chr(10))[0] or type(error).__name__}"
    if reason:
        warnings.warn(
            f"The kernels for this GPU are not used, as {reason}. Each step takes longer. "
            "Triton needs a C compiler, the headers of Python and a TRITON_CACHE_DIR that can be written to.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason


def _on_cuda(plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the implementation for CUDA: the kernel on the device of its tensors, or `plain`."""
    launch: Callable[..., Any] | None = None

    def run(*given: Any) -> Any:
        nonlocal launch
        if launch is None:
            module, _, function = kernel.partition(":")
            launch = plain if why_no_kernels() else getattr(import_module(module), function)
        device = next(one.device for one in given if isinstance(one, Tensor))
        if device.index == torch.cuda.current_device():
            return launch(*given)
        with torch.cuda.device(device):  # Triton launches on the current device
            return launch(*given)

    return run
