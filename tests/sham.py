"""A stand-in for GPUs: tensors that say they are on cuda:0 (or cuda:1, ...) and compute on the CPU.

Code takes its branches for CUDA, a mix of devices raises as it would there, and whatever makes the host wait
for the device is counted, with the place in our code. An operation of ours with a Triton kernel counts as one
launch and computes by its reference. Copies to pinned memory of the host are asynchronous: reading it before
an event has been waited for is an error. Speed and the kernels themselves cannot be seen here.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.sham_cuda import Call, Card, Copy, Fault, Record, Step, full_device, here, patches, seen, stream_of

__all__ = ["CUDA", "Card", "Fault", "PinnedTensor", "Record", "ShamTensor", "Step", "on_sham", "sham_device"]
CUDA = torch.device("cuda", 0)

# Operations whose result, or its shape, the host has to read from the device.
_READS = {
    "_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim", "bincount",
    "is_nonzero", "repeat_interleave",
}  # fmt: skip
_COPIES = {"copy_", "_to_copy"}
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
_SCALARS = {"where", "index_put", "index_put_", "_index_put_impl_"}  # copy a number on the host, and wait
_VIEWS = {
    "view", "_unsafe_view", "_reshape_alias", "reshape", "view_as", "t", "transpose", "permute", "unsqueeze",
    "squeeze", "slice", "select", "expand", "detach", "alias", "split", "split_with_sizes", "chunk", "unbind",
    "as_strided", "unfold", "lift_fresh", "empty", "empty_like", "new_empty", "empty_strided",
}  # fmt: skip


class ShamTensor(torch.Tensor):
    """A tensor of the CPU, `host`, that says it is on CUDA."""

    @staticmethod
    def __new__(cls, host, device=CUDA):
        """A wrapper with the host tensor's shape, strides and dtype."""
        return _wrapper(cls, host, device)

    def __init__(self, host, device=CUDA):
        self.host = host
        here.cards[device.index].hold(self, host.untyped_storage())

    def __repr__(self):
        return f"ShamTensor({self.host})"

    def tolist(self):
        """The values, for which the host waits."""
        seen.wait("tolist")
        return self.host.tolist()

    def __getitem__(self, key):
        return super().__getitem__(_index(key))

    def __setitem__(self, key, value):
        super().__setitem__(_index(key), value)

    def record_stream(self, stream):
        """Nothing to do: no memory is used again too early here."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


class PinnedTensor(torch.Tensor):
    """Pinned memory of the host; `pending` is the copy from or to it that may be under way."""

    @staticmethod
    def __new__(cls, host, pending=None):
        """A wrapper with the host tensor's shape, strides and dtype."""
        return _wrapper(cls, host, torch.device("cpu"))

    def __init__(self, host, pending=None):
        self.host, self.pending = host, pending or Copy()

    def __repr__(self):
        return f"PinnedTensor({self.host})"

    def tolist(self):
        """The values. Raises RuntimeError before they have arrived."""
        self.pending.check(is_written=False)
        return self.host.tolist()

    def numpy(self):
        """The same memory. Raises RuntimeError before the values have arrived."""
        self.pending.check(is_written=False)
        return self.host.numpy()

    def is_pinned(self):
        """As a method of Tensor; always true."""
        return True

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _wrapper(kind, host, device):
    return torch.Tensor._make_wrapper_subclass(
        kind,
        host.shape,
        strides=host.stride(),
        storage_offset=host.storage_offset(),
        dtype=host.dtype,
        device=device,
    )


def _index(key):
    """An index in which a Python list is what PyTorch makes of it: a tensor, by a blocking copy."""
    keys = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, list) for part in keys):
        return key
    seen.wait("list as index")
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
    if named.get("device") is not None and torch.device(named["device"]).type == "cuda":
        named["device"] = torch.device("cpu")
    is_pinned = bool(named.pop("pin_memory", None))
    ours = [tensor for tensor in tensors if isinstance(tensor, ShamTensor)]
    device = _result_device(name, args, kwargs, ours)
    if ours or device:
        seen.meet()
    if ours:
        _check(name, args, tensors)
    pending = _transfer(name, args, kwargs, device) if name in _COPIES else _pending(function, name, args)
    found = function(*plain, **named)
    known = {id(tensor.host): tensor for tensor in tensors if hasattr(tensor, "host")}  # edited in place
    if device is not None:
        results = _mapped(lambda t: known[id(t)] if id(t) in known else ShamTensor(t, device), found)
        _note(name, args, kwargs, ours, results)
        return results
    if is_pinned or pending:
        return _mapped(lambda t: known[id(t)] if id(t) in known else PinnedTensor(t, pending), found)
    return found


def _result_device(name, args, kwargs, ours):
    """The GPU on which the result is; None for the host."""
    if name == "copy_":
        return args[0].device if isinstance(args[0], ShamTensor) else None
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
        return full_device(device) if device.type == "cuda" else None
    return ours[0].device if ours else None


def _mapped(change, value):
    """The value with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_mapped(change, part) for part in value])
    return value


def _transfer(name, args, kwargs, device):
    """Wait for a copy between host and device, or start it: then the state of the pinned memory it uses."""
    target, source = args[:2] if name == "copy_" else (None, args[0])
    if isinstance(source, ShamTensor) == (device is not None):
        return _pending(None, name, args) if device is None else None
    is_free = kwargs.get("non_blocking", False) or (name == "copy_" and len(args) > 2 and args[2])
    if device is not None:
        if not is_free:
            seen.wait("copy from the host")
        elif isinstance(source, PinnedTensor):
            source.pending.start("to the device", stream_of(device))
        return None
    pending = target.pending if isinstance(target, PinnedTensor) else Copy() if target is None else None
    if not is_free or pending is None:
        seen.wait("copy to the host")
        return None
    pending.start("to the host", stream_of(source.device))
    return pending


def _pending(function, name, args):
    """The state of the pinned memory that the host uses now, if its result is a view of it."""
    pinned = [one for one in args if isinstance(one, PinnedTensor)]
    if not pinned:
        return None
    if name in _VIEWS:
        return pinned[0].pending
    for index, one in enumerate(args):
        if isinstance(one, PinnedTensor):
            one.pending.check(is_written=index == 0 and name.endswith("_"))
    return None


def _check(name, args, tensors):
    """Count what makes the host wait. Raises RuntimeError for tensors on several devices."""
    if name in _READS:
        seen.wait(name)
    if name in _COPIES:
        return
    if name in _SCALARS and any(not isinstance(one, ShamTensor) and not one.dim() for one in tensors):
        seen.wait("scalar from the host")
    if name in _INDEXED and any(_is_mask(part) for part in args[1] or ()):
        seen.wait("mask as index")
    devices = {tensor.device for tensor in tensors if tensor.dim() or isinstance(tensor, ShamTensor)}
    if len(devices) > 1:
        if name in _INDEXED and any(not isinstance(one, ShamTensor) for one in tensors):
            seen.wait("index on the host")
        else:
            raise RuntimeError(f"{name} was given tensors on {' and '.join(sorted(map(str, devices)))}")


def _note(name, args, kwargs, ours, results):
    """Record a launch, and which memory is new."""
    before = [one.host.untyped_storage().data_ptr() for one in ours]
    made: list[int] = []
    _mapped(lambda one: made.append(one.host.untyped_storage().data_ptr()), results)
    for address in made:
        if address not in before:
            seen.made += 1
            seen.allocations[address] = seen.made
    if name in _VIEWS:
        return
    addresses = [
        (seen.allocations.get(at, 0), one.storage_offset()) for at, one in zip(before, ours, strict=True)
    ]
    values = repr((_mapped(lambda one: "", args), [kwargs[key] for key in kwargs if key != "out"]))
    seen.launch(Call(name, tuple(tuple(one.shape) for one in ours), tuple(addresses), values))


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


def _tensor(values, *, device=None, pin_memory=False, **options):
    """torch.tensor, which no dispatch sees; on a device it is a blocking copy."""
    if device is not None and torch.device(device).type == "cuda":
        seen.wait("tensor of host values")
        return ShamTensor(_make_tensor(values, **options), full_device(device))
    found = _make_tensor(values, device=device, **options)
    return PinnedTensor(found) if pin_memory else found


def _no_grad(mode):
    """One no_grad for the time that this inference mode is entered."""
    mode.plain = getattr(mode, "plain", None) or torch.no_grad()
    return mode.plain


CUDA_TYPE = 1  # of c10::DeviceType; the CPU is 0


@contextmanager
def sham_device(*cards: Card) -> Iterator[Record]:
    """Within, torch has a GPU for each card, by default one of any size; the record is of what happens."""
    _give_cuda_the_guard_of_the_cpu()
    with pytest.MonkeyPatch.context() as patch, _Device():
        # Inference mode hides operations from the dispatch that all this is made of.
        patch.setattr(torch.inference_mode, "__enter__", lambda self: self._no_grad().__enter__())
        patch.setattr(torch.inference_mode, "__exit__", lambda self, *about: self._no_grad().__exit__(*about))
        patch.setattr(torch.inference_mode, "_no_grad", _no_grad, raising=False)
        patch.setattr(torch, "is_inference_mode_enabled", lambda: True)
        patch.setattr(torch, "tensor", _tensor)
        patch.setattr(torch.Tensor, "pin_memory", lambda self, device=None: PinnedTensor(self.clone()))
        for name, value in patches().items():
            patch.setattr(torch.cuda, name, value)
        here.reset(cards or (Card(),))
        seen.reset()
        yield seen


def on_sham(model, device=CUDA):
    """The module with its parameters and buffers on the sham device."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                moved = torch.nn.Parameter(ShamTensor(value.detach(), device), requires_grad=False)
                module._parameters[name] = moved
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = ShamTensor(value, device)
    return model
