"""`Processor`, the base class of stages, and what a stage receives: `Env`, `Admission`; and `Columns`, the
numeric fields of a stage's Params as tensors indexed by slot.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
)

from processors.later import torch
from processors.params import Note, Params, Phase, hints_of
from processors.request_values import Constraint

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows


class Columns:
    """The numeric fields of a Params class as tensors [S] indexed by slot.

    float is stored as float64, int as int64, bool as bool, and a Literal as its index in the declaration.
    None is stored as `NONE`, a very large number, so that a window of None covers everything.
    """

    NONE: ClassVar[int] = (2**63 - 1) // 2

    def __init__(self, params: type[Params], device: torch.device) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._gathered: dict[str, tuple[tuple[int, ...], Tensor, Tensor]] = {}  # slots, as stored, as float32
        self.is_kept = True  # off for plug-in stages, which may change a gathered tensor in place
        self._choices: dict[str, tuple[Any, ...]] = {}
        self._params: dict[int, Params] = {}
        self._known: dict[str, tuple[tuple[int, ...], frozenset[Any]]] = {}  # slots, and their values
        hints = hints_of(params)
        for field in params.own_fields():
            hint = hints[field.name]
            if get_origin(hint) is Literal:
                self._choices[field.name], hint = get_args(hint), int
            if hint in _DTYPES:
                dtype = getattr(torch, _DTYPES[hint])
                self._tensors[field.name] = torch.zeros(8, dtype=dtype, device=device)

    def write(self, slot: int, params: Params) -> None:
        """Store the values of a slot."""
        self._params[slot] = params
        self._forget()
        for name, tensor in self._tensors.items():
            value = getattr(params, name)
            if name in self._choices:
                value = self._choices[name].index(value)
            tensor = self._tensors[name] = grown(tensor, slot + 1)
            tensor[slot].fill_(self.NONE if value is None else value)  # setting an item would wait for a GPU

    def copy(self, source: int, target: int) -> None:
        """Copy the values of one slot to another."""
        self._params[target] = self._params[source]
        self._forget()
        for name, tensor in self._tensors.items():
            tensor = self._tensors[name] = grown(tensor, target + 1)
            tensor[target] = tensor[source]

    def gather(self, name: str, rows: Rows) -> Tensor:
        """Return the field's value for each row [R]; float fields as float32, like logits.

        The tensor is shared by steps and must not be changed in place.
        """
        return self._of(name, rows)[2]

    def exact(self, name: str, rows: Rows) -> Tensor:
        """Return the field's value for each row [R]; float fields as float64. Not to be changed in place."""
        return self._of(name, rows)[1]

    def at(self, name: str, slots: Tensor) -> Tensor:
        """Return the field's value for each of the slots [N], as `exact` does for rows."""
        return self._tensors[name][slots]

    def _of(self, name: str, rows: Rows) -> tuple[tuple[int, ...], Tensor, Tensor]:
        """Return the entry of the rows' slots; gathered only if the slots differ from the last call's."""
        entry = self._gathered.get(name)
        if entry is None or entry[0] != rows.host_slots or not self.is_kept:
            values = self._tensors[name][rows.slots]
            entry = rows.host_slots, values, values.float() if values.is_floating_point() else values
            self._gathered[name] = entry
        return entry

    def params(self, slot: int) -> Params:
        """Return the parameters of a slot."""
        return self._params[slot]

    def known(self, name: str, rows: Rows) -> frozenset[Any]:
        """Return the distinct values of the field among the rows, without device synchronisation."""
        entry = self._known.get(name)
        if entry is None or entry[0] != rows.host_slots:
            values = frozenset([getattr(self._params[slot], name) for slot in rows.host_slots])
            entry = self._known[name] = rows.host_slots, values
        return entry[1]

    def _forget(self) -> None:
        self._gathered.clear()
        self._known.clear()


def grown(tensor: Tensor, *sizes: int) -> Tensor:
    """Return the tensor, each dimension that is smaller than its size at least doubled, with zeros."""
    for dim, size in enumerate(sizes):
        if (have := tensor.shape[dim]) < size:
            extra = (*tensor.shape[:dim], max(size, 2 * have) - have, *tensor.shape[dim + 1 :])
            tensor = torch.cat([tensor, tensor.new_zeros(extra)], dim)
    return tensor


_DTYPES: dict[Any, str] = {
    float: "float64",
    int: "int64",
    bool: "bool",
    int | None: "int64",
    float | None: "float64",
}


P = TypeVar("P", bound=Params)
T = TypeVar("T")

Document = Literal["free", "open", "complete", "over", "broken"]
# noise(position, ids): Gumbel noise that the draw adds to the logits of `ids` at an output position.
Noise = Callable[[int, Sequence[int]], Sequence[float]]


class Compiler(Protocol):
    """Compiles constraints to grammars under limits of time and memory, and caches the results."""

    def backend(self, name: str) -> Any:
        """Return the only instance of a back end for this vocabulary."""
        ...

    def compile(self, constraint: Constraint, seconds: float = ...) -> Any:
        """Return the compiled grammar. GrammarError if it is wrong or not compiled within `seconds`."""
        ...


class Vocabulary(Protocol):
    """The part of a tokenizer that stages may use."""

    @property
    def vocab_size(self) -> int:
        """Number of ids the tokenizer knows."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of special tokens, which add no text."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes that each id adds to the text; b"" for special ids."""
        ...

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of a text; `special` adds the special tokens of a prompt."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """Environment of all requests: the number of logits per row V, the vocabulary if any, end-of-text ids.

    `grammars` compiles grammars in the background; without it the stage `grammar` compiles them at admission.
    """

    vocab_size: int
    vocabulary: Vocabulary | None = None
    eos_ids: tuple[int, ...] = ()
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    grammars: Compiler | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Facts of a request that a stage receives beside its Params.

    `max_tokens` is the limit of output tokens; None if it is not known. `can_rewind`: chosen tokens are
    committed only as `Processor.settle` says.
    """

    prompt: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    max_tokens: int | None = None
    can_rewind: bool = False


class Settled(NamedTuple):
    """Decision of `Processor.settle` about tokens chosen after the slot's output.

    The first `certain` tokens are committed. The next `held` tokens become drafts of the next step.
    `is_whole`: no token was taken back.
    """

    certain: int
    held: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class GrammarStatus:
    """State of the document in its grammar after a token.

    `document`: free (not begun), open (unfinished), complete (may end here), over (must end here) or broken
    (not allowed by the grammar). `forced`: the grammar allowed no other token.
    """

    document: Document
    forced: bool = False


class Processor(ABC, Generic[P]):
    """A logits processor shared by all requests; the state of a request is indexed by its slot.

    `apply` is pure: state changes only in admit, settle, commit, release and fork. A `sequential` stage needs
    the chosen token of the position before, so its requests run without draft tokens. A stage that
    `keeps_faults` never masks NaN or +inf, so the pipeline need not search for them before it runs. A stage
    that `remembers` uses in `commit` values that its last `apply` computed. `about` is what
    the pages say of a built-in stage, `example_values` switch it on, for checks.
    """

    name: ClassVar[str]
    phase: ClassVar[Phase]
    Params: ClassVar[type[Params]]
    about: ClassVar[Note | None] = None
    example_values: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    sequential: ClassVar[bool] = False
    keeps_faults: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    # Mangled, as a stage of others may have an attribute of that name.
    __by_slot: tuple[tuple[dict[int, Any], Callable[[Any], Any] | None], ...] = ()

    def __init__(self, env: Env) -> None:
        self.env = env
        self.columns = Columns(self.Params, env.device)
        self.notices: list[str] = []  # notices to users, each once; inside a pipeline, the pipeline's list

    @classmethod
    def examples(cls) -> tuple[P, ...]:
        """Return parameters of a built-in stage that switch it on, for checks."""
        return tuple(cls.Params(**values) for values in cls.example_values)  # type: ignore[misc]

    @property
    def prepares(self) -> bool:
        """Whether the stage overrides `prepare`."""
        return type(self).prepare is not Processor.prepare

    @abstractmethod
    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return processed logits [A, V] float32 of the A active rows, edited in place or as a new tensor."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Set up the slot for a request, overwriting the state of an earlier one."""
        self.columns.write(slot, params)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by tokens that were appended to the output."""

    def add_notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)

    def by_slot(self, copied: Callable[[T], T] | None = None) -> dict[int, T]:
        """Return a dictionary by slot; a fork has its source's value, or what `copied` makes of it."""
        values: dict[int, T] = {}
        self.__by_slot = (*self.__by_slot, (values, copied))
        return values

    def release(self, slot: int) -> None:
        """Drop the state of the slot; its request has ended."""
        for values, _ in self.__by_slot:
            values.pop(slot, None)

    def prepare(self, rows: Rows) -> Tensor | None:
        """Do the work of this step that needs no logits, before the forward pass.

        Committed state stays as is. Return which draft tokens of the rows are forced [R, K] bool; None if the
        stage does not know.
        """
        return None

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Return the status after each of these tokens; () from a stage without a grammar."""
        return ()

    def predicted(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Return pairs (token, probability) predicted for the next positions without logits; () if none.

        A pair's probability is that of its token and all tokens before it; 1 for forced tokens. `noise` is
        the Gumbel noise of the slot's draw; None if drafts must not depend on the noise.
        """
        return ()

    def withholds(self, slot: int) -> bool:
        """Whether `settle` decides which tokens of the slot are committed."""
        return False

    def settle(self, slot: int, tokens: Sequence[int], *, is_final: bool) -> Settled:
        """Decide which tokens chosen after the slot's output are certain; `tokens` include those held back.

        `is_final`: the text ends with `tokens` unless some are taken back. Certain tokens are committed next.
        """
        return Settled(len(tokens))

    def may_hold(self, slot: int, tokens: Sequence[int]) -> bool:
        """Whether `settle` may hold or take back any of these tokens. Changes nothing."""
        return False

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that complete the document left open by `tokens`; () if none are needed or found."""
        return ()

    def failure_reason(self, slot: int, drafts: Sequence[int]) -> str:
        """Return which limit of a grammar back end leaves no token after these drafts; "" if none does."""
        return ""

    def notes(self, rows: Rows, tokens: Sequence[int]) -> Sequence[str]:
        """Return one note a row for explanations, beside the change of the logits; () for none.

        `tokens` [R] has for each row the token whose logit the stage changed most, or the likeliest token
        that it masked; -1 for none. Called after `apply` with the same rows.
        """
        return ()

    def idle(self, rows: Rows) -> Sequence[str]:
        """Return for each row why the stage changes no logit, in a few words; () if the stage cannot tell."""
        return ()

    def fork(self, source: int, target: int) -> None:
        """Make the target slot an independent copy of the source."""
        self.columns.copy(source, target)
        for values, copied in self.__by_slot:
            if source in values:
                values[target] = copied(values[source]) if copied else values[source]
            else:
                values.pop(target, None)
