"""Load the runner and the tokenizer of a model by name; the interface for messages of a run to its user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gencli.errors import ModelError, UsageError, device_faults
from gencli.models.backend import ONE_DEVICE, Spread, rank
from gencli.models.files.gguf_header import is_gguf
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import OnBytes

if TYPE_CHECKING:
    from gencli.models.backend import Backend
    from gencli.models.decoder.products.product_maker import Invariance, Kernel
    from gencli.models.device import CudaGraphs
    from gencli.models.files.checkpoint import Checkpoint
    from gencli.models.files.model_files import Quantize
    from gencli.models.model_runner import ModelRunner
    from gencli.text.tokenizer import OnTokenizer, Tokenizer


_CURES = {
    "cpu": " With `dtype` = float32 it does not.",
    "cuda": " With gencli's own decoder and `invariant` = on it does not.",
}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Name and load options of a model.

    `memory_check`: a model larger than the free memory is refused before it is loaded. `companions`: samples
    may need a second KV lane. `rows`: the usual number of sequences per step, for which kernels are chosen.
    """

    name: str = "tiny"
    dtype: str = "auto"
    device: str = "auto"
    max_batch: int = 8
    trust_remote_code: bool = False
    spread: Spread = ONE_DEVICE
    companions: bool = False
    backend: Backend = "auto"
    quantize: Quantize = "none"
    kernel: Kernel = "auto"
    invariant: Invariance = "auto"
    cuda_graphs: CudaGraphs = "auto"
    rows: int = 1
    kv_dtype: str = "auto"
    memory_check: bool = True

    @property
    def max_lanes(self) -> int:
        """The number of KV lanes of all samples and their unconditional sequences."""
        return self.max_batch * (2 if self.companions else 1)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model and its tokenizer."""

    runner: ModelRunner
    tokenizer: Tokenizer


def load(
    choice: ModelChoice, *, on_bytes: OnBytes | None = None, on_tokenizer: OnTokenizer | None = None
) -> Loaded:
    """Load a bundled model, a folder, a GGUF file, or a hub name from the local cache.

    `on_bytes` is called with the loaded and the total bytes of weights, `on_tokenizer` once, before the
    weights are read. Raises UsageError, ModelError, or DeviceError.
    """
    from gencli.text.tokenizer import HFTokenizer, declared_vocabulary

    choice.spread.check(choice.device)
    if choice.name == "fake":
        return _load_fake(choice)
    with device_faults(), _naming_heads(choice.name):
        # Faults of folder and tokenizer are reported before the weights are read, which takes longest.
        checkpoint, reason = _open(choice)
        _check_memory(choice, checkpoint)
        tokenizer = HFTokenizer.load(checkpoint.folder, trust_remote_code=choice.trust_remote_code)
        if on_tokenizer is not None:
            on_tokenizer(tokenizer, *declared_vocabulary(checkpoint.folder, tokenizer))
        load_runner = _load_transformers if checkpoint.spec is None else _load_native
        return Loaded(load_runner(choice, checkpoint, reason, on_bytes), tokenizer)


def _open(choice: ModelChoice) -> tuple[Checkpoint, str]:
    """Return the checked files of a model with the backend that runs it, and the reason for that backend."""
    from gencli.models.backend import choose_backend
    from gencli.models.files.checkpoint import check_checkpoint, read_checkpoint, read_folder

    folder, config = read_folder(choice.name)
    spec, reason = choose_backend(
        choice.backend,
        config,
        trust_remote_code=choice.trust_remote_code,
        is_spread=choice.spread.is_on,
        quantize=choice.quantize,
        kernel=choice.kernel,
        invariant=choice.invariant,
        kv_dtype=choice.kv_dtype,
    )
    if spec is not None:
        return read_checkpoint(folder, config, spec), reason
    if is_gguf(folder):
        if choice.backend == "transformers":
            raise UsageError("`backend` = transformers does not run GGUF files.", hint="Leave `backend` out.")
        raise ModelError(
            f"{folder} cannot be run: {reason}.", hint="Only gencli's own decoder runs GGUF files."
        )
    return check_checkpoint(folder, config, trust_remote_code=choice.trust_remote_code), reason


@contextmanager
def _naming_heads(name: str) -> Iterator[None]:
    """If a model cannot be loaded as it is a trained draft head, say so."""
    try:
        yield
    except ModelError:
        from gencli.speculative.head_files import is_head

        if find_local(name) is None or not is_head(name):
            raise
        raise ModelError(
            f"{name} is a draft head, not a model.",
            hint=f"Name the model that it drafts for, and `draft` = {name}.",
        ) from None


def check_memory(choices: Iterable[ModelChoice], *, free: int | None = None) -> None:
    """Raise ModelError for the first model that does not fit into memory together with the models before it.

    Only file headers are read. `free` (bytes) replaces the free memory.
    """
    before: list[tuple[str, int]] = []
    for choice in choices:
        if choice.name != "fake":
            before.append((choice.name, _check_memory(choice, _open(choice)[0], before, free)))


def _check_memory(
    choice: ModelChoice,
    checkpoint: Checkpoint,
    before: Sequence[tuple[str, int]] = (),
    free: int | None = None,
) -> int:
    """Return the bytes of a model that is loaded after others; 0 if memory is not checked."""
    is_widened = checkpoint.spec is not None and checkpoint.stored == "MXFP4"
    is_unknown = checkpoint.is_quantized and not is_widened
    if not choice.memory_check or choice.spread.is_on or is_unknown:
        return 0
    from gencli.models.device import free_memory, pick_device, pick_dtype
    from gencli.models.files.gguf_header import weight_format
    from gencli.models.model_memory import check_fit

    device = pick_device(choice.device)
    weights = weight_format(checkpoint.folder, choice.quantize, dtype=choice.dtype, device=device.type)
    is_quantized = weights != "none" or checkpoint.bits is not None
    dtype, _ = pick_dtype(choice.dtype, device=device, stored=checkpoint.stored, is_quantized=is_quantized)
    available = free_memory(device) if free is None else free
    left = None if available is None else available - sum(size for _, size in before)
    return check_fit(checkpoint.card, dtype, device, left, weights, [name for name, _ in before])


def _load_native(
    choice: ModelChoice, checkpoint: Checkpoint, reason: str, on_bytes: OnBytes | None
) -> ModelRunner:
    from gencli.models.decoder.decoder import DecoderRunner
    from gencli.models.decoder.products.product_maker import KernelOptions

    return DecoderRunner.load(
        checkpoint,
        dtype=choice.dtype,
        device=choice.device,
        max_lanes=choice.max_lanes,
        backend=f"native: {reason}",
        quantize=choice.quantize,
        kernels=KernelOptions(choice.rows, choice.kernel, choice.invariant),
        cuda_graphs=choice.cuda_graphs,
        kv_dtype=choice.kv_dtype,
        on_bytes=on_bytes,
    )


def _load_transformers(
    choice: ModelChoice, checkpoint: Checkpoint, reason: str, on_bytes: OnBytes | None
) -> ModelRunner:
    """Load a model to run by transformers; the first of several processes gets a leader."""
    from gencli.models.hf_runner import HFRunner

    runner = HFRunner.load(
        checkpoint,
        dtype=choice.dtype,
        device=choice.device,
        max_lanes=choice.max_lanes,
        trust_remote_code=choice.trust_remote_code,
        spread=choice.spread,
        backend=f"transformers: {reason}",
        cuda_graphs=choice.cuda_graphs,
        on_bytes=on_bytes,
    )
    if choice.spread.tp is None or rank():
        return runner
    from gencli.models.other_runners import Leader

    return Leader(runner)


def model_notices(loaded: Loaded) -> Iterator[str]:
    """Yield the notices about a loaded model: its files, its memory layout, and unknown end-of-text ids."""
    from gencli.text.tokenizer import idle_ends

    spec = loaded.runner.spec
    yield from spec.notices
    yield from idle_ends(spec.eos_ids, loaded.tokenizer, spec.vocab_size)


def batch_notices(loaded: Loaded) -> Iterator[str]:
    """Yield a notice if a text may depend on the other texts of its batch."""
    spec = loaded.runner.spec
    if not spec.is_batch_invariant:
        yield (
            f"In {str(spec.dtype).removeprefix('torch.')} a text may depend on what is computed beside it: "
            "other samples, the batch size, drafts, and where a batch was cut."
            f"{_CURES.get(spec.device.type, '')}"
        )


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Tokenizer:
    """Return the tokenizer of a model named as for `load`; the weights may be absent."""
    from gencli.text.tokenizer import ByteTokenizer, HFTokenizer

    if name == "fake":
        return ByteTokenizer()
    folder = find_local(name)
    if folder is None:
        from gencli.models.files.checkpoint import open_checkpoint

        folder = open_checkpoint(name, trust_remote_code=trust_remote_code).folder
    return HFTokenizer.load(folder, trust_remote_code=trust_remote_code)


def _load_fake(choice: ModelChoice) -> Loaded:
    from gencli.models.other_runners import FakeRunner
    from gencli.text.tokenizer import ByteTokenizer

    fixed: Mapping[str, tuple[object, tuple[str | None, ...]]] = {
        "dtype": (choice.dtype, ("auto", "float32")),
        "device": (choice.device, ("auto", "cpu")),
        "backend": (choice.backend, ("auto",)),
        "quantize": (choice.quantize, ("none",)),
        "kernel": (choice.kernel, ("auto",)),
        "invariant": (choice.invariant, ("auto", "on", "off")),
        "cuda_graphs": (choice.cuda_graphs, ("auto", "off")),
        "kv_dtype": (choice.kv_dtype, ("auto", "float32")),
        "tp": (choice.spread.tp, (None,)),
    }
    for key, (value, possible) in fixed.items():
        if value not in possible:
            values = " and ".join(name for name in possible if name)
            raise UsageError(
                f"`{key}` is {value}, but the fake model knows {f'only {values}' if values else 'none'}."
            )
    tokenizer = ByteTokenizer()
    runner = FakeRunner(tokenizer.vocab_size, max_lanes=choice.max_lanes, eos_ids=tokenizer.eos_ids)
    return Loaded(runner, tokenizer)


class Reporter(Protocol):
    """Receives the messages of a run. They name options by key; see gencli.config.option."""

    def say(self, text: str) -> None:
        """Report a line."""

    def notice(self, text: str) -> None:
        """Report a notice."""

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        """Return a context in which a model is loaded or hashed.

        The context's value is a function of the bytes done and the total bytes, or None.
        """


class StoringReporter:
    """Reporter that stores lines and notices in `lines`, for a process whose stderr is not read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def notice(self, text: str) -> None:
        self.lines.append(text)

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        return nullcontext()
