"""What a stage is, and what it is told about the model and the request."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from processors.catalog import Phase
from processors.constraint import Constraint
from processors.params import Params
from processors.rows import Rows

__all__ = [
    "Admission",
    "Columns",
    "Compiler",
    "Document",
    "Env",
    "GrammarStatus",
    "Noise",
    "Processor",
    "Vocabulary",
    "in_slot",
]

P = TypeVar("P", bound=Params)

Document = Literal["free", "open", "complete", "over", "broken"]
Noise = Callable[[int, Sequence[int]], Sequence[float]]  # of a draw, at a position of the output, for ids


class Compiler(Protocol):
    """Makes grammars of constraints, with time, memory and caches in view."""

    def backend(self, name: str) -> Any:
        """The one instance of a back end for the vocabulary."""
        ...

    def compile(self, constraint: Constraint, seconds: float = ...) -> Any:
        """The compiled grammar. GrammarError if there is none, or none within so many seconds."""
        ...

    def start(self, constraint: Constraint, seconds: float = ...) -> Future[Any]:
        """As `compile`, beside other work."""
        ...

    def abandon(self, constraint: Constraint) -> None:
        """End the compile of a constraint that is no longer wanted, where it can be ended."""
        ...


class Vocabulary(Protocol):
    """The part of a tokenizer that stages may use."""

    @property
    def vocab_size(self) -> int:
        """Number of ids the tokenizer knows."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are markers and not text."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """What each id adds to the text; b"" for special ids."""
        ...

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds what the tokenizer puts around a prompt."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """What all requests share: V logits a row, the vocabulary (if any), the end-of-text ids.

    `grammars` compiles grammars; without one the stage `grammar` does so itself, on the spot.
    """

    width: int
    vocabulary: Vocabulary | None = None
    eos_ids: tuple[int, ...] = ()
    device: torch.device = torch.device("cpu")
    grammars: Compiler | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What a stage may know of the request that takes a slot, beside its Params.

    `max_tokens` is the most that the output may have; None if that is not known.
    """

    prompt: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class GrammarStatus:
    """Where the output stands after a token, to a stage that gives it a grammar.

    `document`: not begun (free), unfinished (open), such that it may end (complete) or has to (over), or
    not what the grammar allows (broken). `forced`: the token was the only one that the grammar allowed.
    """

    document: Document
    forced: bool = False


class Processor(ABC, Generic[P]):
    """One stage, shared by all requests; what belongs to a request is indexed by its slot.

    `apply` is pure: committed state changes in admit, commit, release and fork only. `sequential`
    stages need the outcome of the position before, so their requests run without drafts. A stage that
    `keeps_faults` masks no NaN and no +inf, so nobody has to look for these before it runs.
    """

    name: ClassVar[str]
    phase: ClassVar[Phase]
    Params: ClassVar[type[Params]]
    sequential: ClassVar[bool] = False
    keeps_faults: ClassVar[bool] = False

    def __init__(self, env: Env) -> None:
        self.env = env
        self.columns = Columns(self.Params, env.device)
        self.notices: list[str] = []  # what users should hear, each once; the pipeline's list if it has one

    @property
    def prepares(self) -> bool:
        """Whether the stage has a `prepare` of its own."""
        return type(self).prepare is not Processor.prepare

    @abstractmethod
    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V] float32 of the A active rows, edited in place or made anew."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """A request takes the slot; whatever an earlier one left there is overwritten."""
        self.columns.write(slot, params)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """These tokens of the request are final."""

    def release(self, slot: int) -> None:
        """The request has left the slot."""

    def prepare(self, rows: Rows) -> Tensor | None:
        """Work for this step that needs no logits, done before the model runs; nothing committed changes.

        Returns which of the rows' drafts were the only choice [R, K] bool, if the stage knows.
        """
        return None

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Where the output would stand after each of these tokens; () from a stage without a grammar."""
        return ()

    def likely(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Tokens that have to come next, or are likely to, whatever the logits say; () if none are known.

        Each with how likely it is that it and all before it come. `noise` is what the slot's draw will add to
        logits, where drafts may know of it.
        """
        return ()

    def closing(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Tokens that complete an open document behind these; () if there is none, or no way is known."""
        return ()

    def failure_reason(self, slot: int, drafts: Sequence[int]) -> str:
        """Why no token is left behind these drafts, where what was asked for is not the reason."""
        return ""

    def fork(self, source: int, target: int) -> None:
        """The target slot becomes an independent copy of the source."""
        self.columns.copy(source, target)


class Columns:
    """The numeric fields of a Params class as slot-indexed tensors [S].

    Numbers are kept as float64, whole numbers as int64, switches as bool; a Literal is its place in the
    declaration; None is the largest int64 (a window of None holds everything).
    """

    NONE: ClassVar[int] = torch.iinfo(torch.int64).max // 2

    def __init__(self, params: type[Params], device: torch.device) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._choices: dict[str, tuple[Any, ...]] = {}
        self._params: dict[int, Params] = {}
        hints = get_type_hints(params)
        for field in dataclasses.fields(params):
            hint = hints[field.name]
            if get_origin(hint) is Literal:
                self._choices[field.name] = get_args(hint)
            dtype = _column_dtype(hint)
            if dtype is not None:
                self._tensors[field.name] = torch.zeros(8, dtype=dtype, device=device)

    def write(self, slot: int, params: Params) -> None:
        """Set the slot's values."""
        self._params[slot] = params
        for name, tensor in self._tensors.items():
            value = getattr(params, name)
            if name in self._choices:
                value = self._choices[name].index(value)
            tensor = self._tensors[name] = in_slot(tensor, slot)
            tensor[slot] = self.NONE if value is None else value

    def copy(self, source: int, target: int) -> None:
        """Give the target slot the source's values."""
        self._params[target] = self._params[source]
        for name, tensor in self._tensors.items():
            tensor = self._tensors[name] = in_slot(tensor, target)
            tensor[target] = tensor[source]

    def gather(self, name: str, rows: Rows) -> Tensor:
        """The field's value for each row [R]; numbers are float32, as logits are."""
        values = self.exact(name, rows)
        return values.float() if values.is_floating_point() else values

    def exact(self, name: str, rows: Rows) -> Tensor:
        """The field's value for each row [R]; numbers are float64, as they were given."""
        return self._tensors[name][rows.slots]

    def known(self, name: str, rows: Rows) -> set[Any]:
        """The values of the field among the rows, as the host knows them: no look at the device."""
        return {getattr(self._params[slot], name) for slot in set(rows.host_slots)}


def in_slot(tensor: Tensor, slot: int, fill: float = 0) -> Tensor:
    """The tensor with room for this slot in its first dimension, grown by doubling with `fill`."""
    if slot < tensor.shape[0]:
        return tensor
    extra = max(slot + 1, 2 * tensor.shape[0]) - tensor.shape[0]
    return torch.cat([tensor, tensor.new_full((extra, *tensor.shape[1:]), fill)])


def _column_dtype(hint: Any) -> torch.dtype | None:
    simple = {float: torch.float64, int: torch.int64, bool: torch.bool}
    if get_origin(hint) is Literal:
        return torch.int64
    if hint in simple:
        return simple[hint]
    return torch.int64 if hint == int | None else None
