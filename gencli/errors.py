"""The errors of gencli with their exit codes, and its one warning.

GencliError
    UsageError          2   unknown options, wrong values, conflicting options
    ConfigError         3   presets and schemas
    PluginError         4   a plugin that cannot be loaded or used
    ModelError          5   a model or tokenizer that cannot be loaded or used
    GenerationError     6   a request that could not be finished
        DeviceError             the GPU has failed; nothing runs on it any more
GencliWarning               a notice: nothing fails, but the result may not be the expected one
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from processors.errors import device_fault


class GencliError(Exception):
    """An error for the user: what was given, what was expected, and (`hint`) what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GencliError):
    """An option, argument or request is invalid."""

    exit_code = 2


class ConfigError(GencliError):
    """A preset or schema is invalid."""

    exit_code = 3


class PluginError(GencliError):
    """A plugin cannot be loaded, or its class is invalid."""

    exit_code = 4


class ModelError(GencliError):
    """The model cannot be loaded, or cannot do what was requested."""

    exit_code = 5


class GenerationError(GencliError):
    """A request failed while it ran."""

    exit_code = 6


class DeviceError(GenerationError):
    """The GPU has failed, and with it all requests: no call works on it until the process ends."""

    @classmethod
    def of(cls, error: BaseException) -> DeviceError | None:
        """Return an exception of PyTorch or of a kernel as DeviceError; None if the GPU has not failed."""
        if not (fault := device_fault(error)):
            return None
        for part, message, hint in _DEVICE_FAULTS:
            if part in fault:
                return cls(f"{message}: {fault}.", hint=hint)
        return cls(f"The GPU has failed: {fault}.", hint=_RESTART)


@contextmanager
def device_faults() -> Iterator[None]:
    """Raise a fault of the GPU in the block as DeviceError."""
    try:
        yield
    except Exception as error:
        if device_error := DeviceError.of(error):
            raise device_error from error
        raise


class GencliWarning(UserWarning):
    """A notice for a Python caller. `gencli run` writes the same text to stderr."""


_CPU = "`device` = cpu does without it."
_RESTART = (
    "This process cannot use it any more: start again. If it fails again, nvidia-smi and the system's "
    f"log tell more, and CUDA_LAUNCH_BLOCKING=1 names the operation; {_CPU}"
)
_RESET = f"nvidia-smi and the system's log tell more. The card may need a reset; {_CPU}"
_BUILD = f"https://pytorch.org/get-started has builds for other GPUs; {_CPU}"
_DRIVER = f"Update the driver, or install a build of PyTorch for an older one; {_CPU}"
_DEVICE_FAULTS = (  # substring of the GPU's or driver's message, message, hint
    ("no kernel image", "This build of PyTorch has no code for this GPU", _BUILD),
    ("invalid device function", "This build of PyTorch has no code for this GPU", _BUILD),
    ("driver version is insufficient", "The driver of the GPU is too old for this PyTorch", _DRIVER),
    ("too old", "The driver of the GPU is too old for this PyTorch", _DRIVER),
    ("busy or unavailable", "Another process has the GPU for itself", _CPU),
    ("lost", "The GPU is gone", _RESET),
    ("fallen off the bus", "The GPU is gone", _RESET),
    ("ECC error", "The memory of the GPU has failed", _RESET),
)


def is_panic(error: BaseException) -> bool:
    """Whether a Rust library panicked; pyo3's PanicException is not an Exception."""
    return type(error).__name__ == "PanicException"
