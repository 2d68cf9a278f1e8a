"""Shared by stages: token ids named by a request and edits of single logits, lists of numbers per slot
(`Lists`, `IdStage`), tables shared by slots (`TableStage`), and phrases for notes.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from processors.base import Admission, Env, P, Processor, Vocabulary, grown
from processors.errors import ParamError, TokenError
from processors.later import graphs, torch

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows

Scope = Literal["prompt", "output", "both"]

HIGHEST = (2 - 2**-23) * 2.0**127  # the largest float32
LOWEST = -HIGHEST
COLDEST = 2.0**-126  # the smallest normal float32


def checked(ids: Iterable[int], env: Env, subject: str) -> tuple[int, ...]:
    """Return the ids. TokenError for one outside the vocabulary of the model or the tokenizer."""
    limit = env.vocab_size if env.vocabulary is None else min(env.vocab_size, env.vocabulary.vocab_size)
    ids = tuple(ids)
    for token in ids:
        if not 0 <= token < limit:
            raise TokenError(f"{subject} names token {token}, but ids go from 0 to {limit - 1}.")
    return ids


def check_texts(name: str, texts: Sequence[str], limit: int, effect: str = "") -> None:
    """Raise ParamError for an empty text, which has this effect, or for more than `limit` bytes together."""
    if "" in texts:
        raise ParamError(f"{name} has an empty text{effect}. Remove it.", (texts.index(""),))
    size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    if size > limit:
        raise ParamError(f"{name} are {size} bytes together, but the limit is {limit}.")


def token_id(key: int | str, env: Env, subject: str) -> int:
    """Return the id of a key: an id, or a text that is exactly one token. TokenError for other keys."""
    if isinstance(key, int):
        return checked((key,), env, subject)[0]
    if env.vocabulary is None:
        raise TokenError(f"{subject} names the text {key!r}, but there is no tokenizer. Give its token id.")
    ids = env.vocabulary.encode(key, special=False)
    if len(ids) != 1:
        shown = " + ".join(f"{env.vocabulary.token_bytes[i].decode(errors='replace')!r} ({i})" for i in ids)
        raise TokenError(f"{subject} names the text {key!r}, which is {len(ids)} tokens: {shown or 'none'}.")
    return checked(ids, env, subject)[0]


def exempt_ids(keys: Iterable[int | str], env: Env, request: Admission, subject: str) -> set[int]:
    """Return the ids of a list of exempt tokens, given as keywords, ids or texts.

    `special` are the special tokens, `eos` the end-of-text ids, `stop` these and the request's stop ids,
    `newline` all tokens with a line feed. TokenError for a text that is not one token, and for an id outside
    the vocabulary.
    """
    ids: set[int] = set()
    for key in keys:
        if key == "special":
            ids.update(env.vocabulary.special_ids if env.vocabulary else ())
        elif key in ("eos", "stop"):
            ids.update(env.eos_ids, request.stop_ids if key == "stop" else ())
        elif key == "newline":
            ids.update(_newlines(env))
        else:
            ids.add(token_id(key, env, f"{subject}: exempt"))
    return ids


@lru_cache(maxsize=4)
def _newlines(env: Env) -> tuple[int, ...]:
    token_bytes = env.vocabulary.token_bytes if env.vocabulary else ()
    return tuple(token for token, data in enumerate(token_bytes) if b"\n" in data)


def edit(logits: Tensor, ids: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Write float64 values `new` [A, N] to these ids [A, N] of the logits [A, V], in place.

    Infinite logits keep their `old` value, so masked tokens stay masked. Values are clamped to finite
    float32.
    """
    new = torch.where(old.isinf(), old, new.clamp(LOWEST, HIGHEST))
    return logits.scatter_(1, ids, new.float())


class Lists:
    """A list of numbers per slot, as a tensor [S, N] padded with the last number of each list.

    With this padding a scatter writes equal values to equal ids, and a sorted list stays sorted. An empty
    list is all zeros; `gather` returns which rows have a list.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._values = torch.zeros(8, 1, dtype=dtype, device=device)
        self._filled = torch.zeros(8, 1, dtype=torch.bool, device=device)
        self._sizes: dict[int, int] = {}
        self._numbers: dict[int, Tensor] = {}

    def write(self, slot: int, numbers: Sequence[float]) -> None:
        self._reserve(slot, len(numbers))
        padded = torch.zeros(self._values.shape[1], dtype=self._values.dtype)
        values = self._numbers[slot] = torch.tensor(numbers, dtype=padded.dtype)
        if numbers:
            padded[: len(numbers)] = values
            padded[len(numbers) :] = numbers[-1]
        self._values[slot].copy_(padded, non_blocking=True)
        self._filled[slot].fill_(bool(numbers))
        self._sizes[slot] = len(numbers)

    def copy(self, source: int, target: int) -> None:
        self._reserve(target, 1)
        self._values[target] = self._values[source]
        self._filled[target] = self._filled[source]
        self._sizes[target], self._numbers[target] = self._sizes[source], self._numbers[source]

    def numbers(self, slot: int) -> Tensor:
        """Return the list of a slot [n] on the host; read-only."""
        return self._numbers[slot]

    def gather(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the lists of the rows [R, N], N the longest length, and whether each is non-empty [R, 1]."""
        size = max((self._sizes[slot] for slot in set(rows.host_slots)), default=1)
        return self._values[rows.slots, : max(size, 1)], self._filled[rows.slots]

    def are_empty(self, rows: Rows) -> bool:
        """Whether no row has a list, without device synchronisation."""
        return not any(self._sizes[slot] for slot in set(rows.host_slots))

    def _reserve(self, slot: int, size: int) -> None:
        self._values = grown(self._values, slot + 1)
        self._filled = grown(self._filled, slot + 1)
        missing = size - self._values.shape[1]
        if missing > 0:
            last = self._values[:, -1:].expand(-1, missing)
            self._values = torch.cat([self._values, last], 1)


class IdStage(Processor[P]):
    """A stage with a sorted list of token ids per slot."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.ids = Lists(torch.int64, env.device)

    @abstractmethod
    def listed(self, params: P, request: Admission) -> Iterable[int]:
        """Return the ids of a request. TokenError for an id outside the vocabulary."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        super().admit(slot, params, request)
        self.ids.write(slot, sorted(set(self.listed(params, request))))

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self.ids.copy(source, target)


def mask(logits: Tensor, ids: Tensor, where: Tensor) -> Tensor:
    """Mask these ids [A, N] of the logits [A, V] in the rows where `where` [A, 1] is True."""
    return logits.scatter_(1, ids, logits.gather(1, ids).masked_fill_(where, -math.inf))


T = TypeVar("T")


def mask_pairs(logits: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Mask pairs (row, id) of the logits [A, V] in place."""
    at = graphs.upload(pairs, logits.device, torch.int64)
    # Assigning a Python number would synchronise with the device.
    logits.index_put_((at[:, 0], at[:, 1]), logits.new_full((), -math.inf))


def grouped(values: Iterable[T]) -> dict[T, list[int]]:
    """Return the distinct values, each with the indices at which it occurs."""
    indices: dict[T, list[int]] = {}
    for index, value in enumerate(values):
        indices.setdefault(value, []).append(index)
    return indices


class TableStage(Processor[P], Generic[P, T]):
    """A stage with immutable tables, which slots with equal parameters share."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._of: dict[int, T] = self.by_slot()
        self._built: Callable[[P], T] = functools.lru_cache(maxsize=16)(self.tables)

    @abstractmethod
    def tables(self, params: P) -> T:
        """Build the tables for these parameters. Raises ProcessorsError for invalid ones."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Build the tables, or reuse those of an earlier request."""
        super().admit(slot, params, request)
        self._of[slot] = self._built(params)

    def places(self, rows: Rows) -> dict[T, list[int]]:
        """Return the distinct tables of the rows, each with the indices of its rows."""
        return grouped(self._of[slot] for slot in rows.host_slots)


_SHOWN_POSITIONS = 4
_LONGEST = 40  # characters of a text, and tokens


def quoted(ids: Sequence[int], vocabulary: Vocabulary | None) -> str:
    """Return the end of these ids' text in quotes, or the ids if there is no tokenizer.

    Control characters are kept; the terminal's writer escapes them.
    """
    last = ids[-_LONGEST:]
    if vocabulary is None:
        return "ids " + " ".join(map(str, last))
    token_bytes = vocabulary.token_bytes
    data = b"".join(token_bytes[token] for token in last if 0 <= token < len(token_bytes))
    text = data.decode("utf-8", "replace")
    is_whole = len(ids) <= _LONGEST and len(text) <= _LONGEST
    return f'"{text}"' if is_whole else f'"...{text[-_LONGEST:]}"'


def places(columns: Sequence[int], prompt: int) -> str:
    """Return the positions of a token: "seen 3x, at 8 of the prompt and 0 5 of the output".

    `columns` index prompt and output together; `prompt` is the prompt's length. Of many positions only the
    last are listed.
    """
    shown = columns[-_SHOWN_POSITIONS:]
    begun = [str(column) for column in shown if column < prompt]
    later = [str(column - prompt) for column in shown if column >= prompt]
    parts = [f"{' '.join(at)} of the {where}" for at, where in ((begun, "prompt"), (later, "output")) if at]
    return f"seen {len(columns)}x, {'last ' * (len(shown) < len(columns))}at {' and '.join(parts)}"


def place(column: int, prompt: int) -> str:
    """Return the position of a column of prompt and output: "8 of the prompt"."""
    return f"{column} of the prompt" if column < prompt else f"{column - prompt} of the output"
