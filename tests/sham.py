"""A stand-in for a GPU: tensors that say they are on cuda:0 and compute on the CPU.

Code takes its branches for CUDA, a mix of devices raises as it would there, and whatever makes the host wait
for the device is counted, with the place in our code. An operation of ours with a Triton kernel counts as one
launch and computes by its reference. Speed and the kernels themselves cannot be seen here.
"""

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CUDA", "Record", "on_sham", "sham_device"]

ROOT = Path(__file__).parent.parent
CUDA = torch.device("cuda", 0)

# Operations whose result, or its shape, the host has to read from the device.
_READS = {
    "_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim", "bincount",
    "is_nonzero", "repeat_interleave",
}  # fmt: skip
_COPIES = {"copy_", "_to_copy"}
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
_VIEWS = {
    "view", "_unsafe_view", "_reshape_alias", "reshape", "view_as", "t", "transpose", "permute", "unsqueeze",
    "squeeze", "slice", "select", "expand", "detach", "alias", "split", "split_with_sizes", "chunk", "unbind",
    "as_strided", "unfold", "lift_fresh", "empty", "empty_like", "new_empty", "empty_strided",
}  # fmt: skip


@dataclass
class Record:
    """What was seen: waits by (kind, place in our code), launched operations by name.

    `calls` has each launch in order: its name, the shapes and the addresses of its tensors on the device. Two
    steps that could share a CUDA graph have equal ones.
    """

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)
    calls: list[tuple[str, tuple[tuple[int, ...], ...], tuple[int, ...]]] = field(default_factory=list)

    def wait(self, kind: str) -> None:
        """The host waits for the device here."""
        self.waits[kind, _place()] += 1

    def clear(self) -> None:
        """Forget all."""
        self.waits.clear()
        self.launches.clear()
        self.calls.clear()


_seen = Record()  # of the one device there is, as a dispatched operation knows no other way to it


def _place() -> str:
    """The innermost frame of ours: file and function."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "gencli") or path.is_relative_to(ROOT / "processors"):
            return f"{path.relative_to(ROOT)}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


class ShamTensor(torch.Tensor):
    """A tensor of the CPU that says it is on cuda:0."""

    @staticmethod
    def __new__(cls, host):
        """A wrapper with the host tensor's shape, strides and dtype."""
        return torch.Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=CUDA,
        )

    def __init__(self, host):
        self.host = host

    def __repr__(self):
        return f"ShamTensor({self.host})"

    def tolist(self):
        """The values, for which the host waits."""
        _seen.wait("tolist")
        return self.host.tolist()

    def __getitem__(self, key):
        return super().__getitem__(_index(key))

    def __setitem__(self, key, value):
        super().__setitem__(_index(key), value)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _index(key):
    """An index in which a Python list is what PyTorch makes of it: a tensor, by a blocking copy."""
    keys = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, list) for part in keys):
        return key
    _seen.wait("list as index")
    found = tuple(ShamTensor(torch.tensor(part)) if isinstance(part, list) else part for part in keys)
    return found if isinstance(key, tuple) else found[0]


def _run(function, args, kwargs):
    """Compute on the CPU, and note what a GPU would have waited for."""
    name = function._schema.name.partition("::")[2]
    tensors: list[torch.Tensor] = []
    plain = _mapped(lambda tensor: tensors.append(tensor) or getattr(tensor, "host", tensor), args)
    named = {
        key: _mapped(lambda t: tensors.append(t) or getattr(t, "host", t), kwargs[key]) for key in kwargs
    }
    ours = [tensor for tensor in tensors if isinstance(tensor, ShamTensor)]
    target = torch.device(named["device"]) if named.get("device") is not None else None
    leaves = not isinstance(args[0], ShamTensor) if name == "copy_" else bool(target and target.type == "cpu")
    if ours:
        _note(name, args, tensors, leaves)
    is_made_there = target is not None and target.type == "cuda"
    if is_made_there:
        named["device"] = torch.device("cpu")
    found = function(*plain, **named)
    if leaves or not (ours or is_made_there):
        return found
    known = {id(tensor.host): tensor for tensor in ours}  # what was edited in place is what was given
    return _mapped(lambda tensor: known[id(tensor)] if id(tensor) in known else ShamTensor(tensor), found)


def _mapped(change, value):
    """The value with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_mapped(change, part) for part in value])
    return value


def _note(name, args, tensors, leaves):
    if name not in _VIEWS:
        _seen.launches[name] += 1
        given = [tensor.host for tensor in tensors if isinstance(tensor, ShamTensor)]
        shapes, places = ([tuple(one.shape) for one in given], [one.data_ptr() for one in given])
        _seen.calls.append((name, tuple(shapes), tuple(places)))
    if name in _READS:
        _seen.wait(name)
    if leaves:
        _seen.wait("copy to the host")
    if name in _COPIES:
        return
    if name in _INDEXED and any(_is_mask(part) for part in args[1] or ()):
        _seen.wait("mask as index")
    strangers = [tensor for tensor in tensors if not isinstance(tensor, ShamTensor) and tensor.dim()]
    if strangers and name in _INDEXED:
        _seen.wait("index on the host")
    elif strangers:
        raise RuntimeError(f"{name} was given tensors on cuda:0 and on the CPU, of {strangers[0].shape}")


def _is_mask(part):
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


class _Device(TorchDispatchMode):
    """Catches what is made on the device from nothing but host values."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _give_cuda_the_guard_of_the_cpu():
    """A build without CUDA has no device guard for it, and refuses to index; the CPU's does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 25).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[CUDA_TYPE] = guards[CUDA_TYPE] or guards[0]


_make_tensor = torch.tensor


def _tensor(values, *, device=None, **options):
    """torch.tensor, which no dispatch sees; on a device it is a blocking copy."""
    if device is None or torch.device(device).type != "cuda":
        return _make_tensor(values, device=device, **options)
    _seen.wait("tensor of host values")
    return ShamTensor(_make_tensor(values, **options))


def _no_grad(mode):
    """One no_grad for the time that this inference mode is entered."""
    mode.plain = getattr(mode, "plain", None) or torch.no_grad()
    return mode.plain


CUDA_TYPE = 1  # of c10::DeviceType; the CPU is 0


@contextmanager
def sham_device() -> Iterator[Record]:
    """Within, torch has a device cuda:0 that is none; the record is of what happens on it."""
    _give_cuda_the_guard_of_the_cpu()
    with pytest.MonkeyPatch.context() as patch, _Device():
        # Inference mode hides operations from the dispatch that all this is made of.
        patch.setattr(torch.inference_mode, "__enter__", lambda self: self._no_grad().__enter__())
        patch.setattr(torch.inference_mode, "__exit__", lambda self, *about: self._no_grad().__exit__(*about))
        patch.setattr(torch.inference_mode, "_no_grad", _no_grad, raising=False)
        patch.setattr(torch, "is_inference_mode_enabled", lambda: True)
        patch.setattr(torch, "tensor", _tensor)
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        # What is drawn there is drawn on the CPU, so its generator is the device's too.
        patch.setattr(torch.cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state())
        patch.setattr(torch.cuda, "set_rng_state", lambda state, device="cuda": torch.set_rng_state(state))
        _seen.clear()
        yield _seen


def on_sham(model):
    """The module with its parameters and buffers on the sham device."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                moved = torch.nn.Parameter(ShamTensor(value.detach()), requires_grad=False)
                module._parameters[name] = moved
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = ShamTensor(value)
    return model
