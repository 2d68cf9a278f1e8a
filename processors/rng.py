"""Keyed random numbers: a hash of (request seed, position, stream, id), the same on every device; and the
keyed functions of the watermarks (contexts, KGW, SynthID, Philox), for stages and detectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cached_property, lru_cache, partial
from math import log
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor

from processors.rows import Rows

if TYPE_CHECKING:
    from processors.stages.watermarks import KgwParams, SynthIdParams

_MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15  # odd, close to 2**64 / golden ratio
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
BITS = 52  # (m + 0.5) / 2**52 is exact in float64 for every m, and never 0 or 1


class Stream(IntEnum):
    """Purpose of a draw; draws of different streams are independent."""

    TOKEN = 1
    BLOCK = 2
    XTC = 3
    ACCEPT = 4
    RESIDUAL = 5
    DRAFT = 6


@overload
def mix(value: int) -> int: ...
@overload
def mix(value: Tensor) -> Tensor: ...
@overload
def mix(value: Any) -> Any: ...
def mix(value: Any) -> Any:
    """Mix 64 bits; a bijection. int64 tensors stay signed, Python integers become unsigned.

    NumPy arrays of uint64 are mixed in place.
    """
    if isinstance(value, int):
        value &= _MASK
        value = ((value ^ (value >> 30)) * _FIRST) & _MASK
        value = ((value ^ (value >> 27)) * _SECOND) & _MASK
        return value ^ (value >> 31)
    if isinstance(value, Tensor):
        value = (value ^ _shifted(value, 30)) * signed(_FIRST)
        value = (value ^ _shifted(value, 27)) * signed(_SECOND)
        return value ^ _shifted(value, 31)
    value ^= value >> 30  # the arithmetic of uint64 wraps by itself
    value *= _FIRST
    value ^= value >> 27
    value *= _SECOND
    value ^= value >> 31
    return value


def derive(seed: int, key: int | str) -> int:
    """Return the unsigned 64-bit seed of a row (by id or index) or of a sample (by number)."""
    if isinstance(key, str):
        key = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
        seed = mix(seed + 1)  # so that a row named "0" differs from row 0
    return mix(mix(seed + GAMMA) + (key + 1) * GAMMA)


def stream_key(name: str) -> int:
    """Return the stream of a plug-in by name; it never equals a built-in stream."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") | 1 << 63


def row_keys(seeds: Tensor, positions: Tensor, stream: int) -> Tensor:
    """Return a key per row [R] int64 from seeds [R], positions [R] and the stream.

    On a CPU computed by NumPy: its 25 operations on a few numbers take less than half the time of PyTorch's.
    """
    if positions.device.type == "cpu" and seeds.ndim == positions.ndim == 1:
        try:
            arrays: tuple[Any, Any] = (seeds.numpy(), positions.numpy())
        except RuntimeError:  # PyTorch built without NumPy
            pass
        else:
            return torch.from_numpy(row_key_array(*arrays, stream).view("int64"))
    return mix(mix(seeds + positions * signed(GAMMA)) + signed(stream * GAMMA))


def row_key_array(seeds: Any, positions: Any, stream: int) -> Any:
    """Return the keys of `row_keys`, uint64, for NumPy arrays of seeds and positions [R] int64.

    A single key is computed in plain Python, in a sixth of NumPy's time.
    """
    if len(seeds) == 1:
        keys = seeds.view("uint64").copy()
        keys[0] = row_key(int(seeds[0]), int(positions[0]), stream)
        return keys
    inner = mix(seeds.view("uint64") + positions.view("uint64") * GAMMA)
    return mix(inner + stream * GAMMA % 2**64)


def row_key(seed: int, position: int, stream: int) -> int:
    """Return the unsigned key of one row, as row_keys, from numbers on the host."""
    return mix(mix(seed + position * GAMMA) + stream * GAMMA)


def token_hash(keys: Tensor, ids: Tensor) -> Tensor:
    """Return 64 random bits for each (row key, id), broadcast."""
    return mix(keys + ids * signed(GAMMA))


def uniform(keys: Tensor, ids: Tensor) -> Tensor:
    """Return float64 numbers in the open interval (0, 1), broadcast over (row key, id)."""
    mantissa = _shifted(token_hash(keys, ids), 64 - BITS)
    return (mantissa.to(torch.float64) + 0.5) * 2.0**-BITS


def gumbel(keys: Tensor, ids: Tensor) -> Tensor:
    """Return standard Gumbel noise, float64, broadcast over (row key, id)."""
    return -torch.log(-torch.log(uniform(keys, ids)))


def few_gumbel(seed: int, stream: int, position: int, ids: Iterable[int]) -> list[float]:
    """Return Gumbel noise of a few ids at one position in plain Python, which is faster for a few numbers."""
    key = row_key(seed, position, stream)
    mantissas = (mix(key + token * GAMMA) >> (64 - BITS) for token in ids)
    return [-log(-log((mantissa + 0.5) * 2.0**-BITS)) for mantissa in mantissas]


def signed(value: int) -> int:
    """Return the int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shifted(value: Tensor, bits: int) -> Tensor:
    # >> on int64 extends the sign; the mask makes it a logical shift.
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def num_seen(rows: Rows, *, prompt: bool = False) -> int:
    """Return the largest number of output tokens (with `prompt` of all tokens) that a row sees."""
    history, slots = rows.history, rows.host_slots
    counts = [history.length(slot) for slot in slots] if prompt else history.positions(slots)
    return max(
        (count + len(drafts) for count, drafts in zip(counts, rows.host_drafts, strict=True)), default=0
    )


def last_ids(rows: Rows, width: int, fill: int, *, prompt: bool = False) -> tuple[Tensor, Tensor]:
    """Return the last `width` output ids of each row [R, width], with `fill` in front, and their number [R].

    A row's drafts are included; with `prompt`, ids of the prompt too.
    """
    history = rows.history
    lengths = history.lengths[rows.slots]
    first = torch.zeros_like(lengths) if prompt else history.prompt_lengths[rows.slots]
    total = lengths + rows.offsets
    columns = total[:, None] + torch.arange(-width, 0, device=lengths.device)
    tokens = history.tokens
    ids = tokens[rows.slots[:, None], columns.clamp(0, tokens.shape[1] - 1)]
    num_drafts = rows.drafts.shape[1]
    if num_drafts:
        offsets = columns - lengths[:, None]
        ids = torch.where(offsets >= 0, rows.drafts.gather(1, offsets.clamp(0, num_drafts - 1)), ids)
    return ids.masked_fill(columns < first[:, None], fill), total - first


def are_repeated(ids: Tensor, count: Tensor, width: int, *, skip: int = 0) -> Tensor:
    """Return whether the last `width` ids were the context of an earlier token, [R] bool.

    ids [R, N]: last ids of each row. count [R]: number of tokens of each row. The N - width earlier contexts
    are compared, except those of the first `skip` tokens.
    """
    num = ids.shape[1] - width
    if num <= 0:
        return torch.zeros_like(count, dtype=torch.bool)
    position = count[:, None] + torch.arange(-num, 0, device=ids.device)
    is_repeated = position >= skip
    for offset in range(width):
        is_repeated &= ids[:, offset : offset + num] == ids[:, num + offset, None]
    return is_repeated.any(1)


NUM_CANDIDATES = 40  # most likely tokens that selfhash tests
_TABLE = 1_000_003  # entries of the table of selfhash
_KEPT = 256  # permutations whose green ids are cached


class Green:
    """The green tokens of one key for a vocabulary of `vocab` ids. `size` of them are green."""

    def __init__(self, params: KgwParams, vocab: int) -> None:
        assert params.key is not None
        self.params, self.vocab = params, vocab
        self.size = int(vocab * params.ratio)
        (self._key,) = params.key.numbers
        self._green = lru_cache(_KEPT)(partial(_green_ids, vocab, self.size))  # by seed

    @property
    def is_self(self) -> bool:
        """Whether the token itself is part of its context."""
        return self.params.scheme == "selfhash"

    def after(self, last: int) -> Tensor:
        """Return which ids are green after this token [V] bool, with lefthash."""
        return self._green(self._key * last)

    def among(self, context: Sequence[int], candidates: Sequence[int]) -> list[bool]:
        """Return which candidates are green after a context of width - 1 ids, with selfhash."""
        if not candidates:
            return []
        table = self._table
        factors = table[torch.tensor(candidates) % _TABLE] + 1
        seeds = factors * factors * signed(self._key)
        if context:
            left = table[torch.tensor(context) % _TABLE] + 1
            seeds = torch.minimum(seeds, (left[:, None] * signed(self._key) * factors).amin(0))
        greens = map(self._green, seeds.tolist())
        return [bool(green[token]) for green, token in zip(greens, candidates, strict=True)]

    def is_green(self, ngram: Sequence[int]) -> bool:
        """Return whether the last id of an n-gram is green after the other ids."""
        *context, token = ngram
        if token >= self.vocab:
            return False
        if self.is_self:
            return self.among(context, [token])[0]
        return bool(self.after(context[-1])[token])

    @cached_property
    def _table(self) -> Tensor:
        return torch.randperm(_TABLE, generator=torch.Generator().manual_seed(self._key))


def _green_ids(vocab: int, size: int, seed: int) -> Tensor:
    """Return the green ids of a seed [V] bool."""
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed % (2**64 - 1)))
    return torch.zeros(vocab, dtype=torch.bool).index_fill_(0, order[:size], True)


_WORD = 2**32 - 1
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_CONTEXT, _TOKEN = 0x574D4358, 0x574D544B  # domain of a block: hash of a context, or number of a token
_BITS = 24  # bits of a uniform number
# Bounds of the Gumbel noise of numbers with 24 bits.
LARGEST_NOISE, SMALLEST_NOISE = 16.64, -2.82

_Words = tuple[Tensor, Tensor, Tensor, Tensor]


def derived_key(key: int, which: str) -> int:
    """Return one of the two keys derived from a key; `which` is "key_a" or "key_b"."""
    digest = hashlib.sha256(which.encode() + key.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def philox(counter: _Words, key: tuple[Tensor, Tensor]) -> _Words:
    """Return the four random words of a counter and a key, broadcast.

    On a CPU computed by NumPy: its 160 operations on a few numbers take a third of the time of PyTorch's.
    """
    if counter[0].device.type == "cpu":
        try:
            arrays = [words.numpy() for words in (*counter, *key)]
        except RuntimeError:  # PyTorch built without NumPy
            pass
        else:
            return cast(_Words, tuple(map(torch.from_numpy, _rounds(arrays[:4], arrays[4:]))))
    return cast(_Words, _rounds(counter, key))


def _rounds(counter: Any, key: Any) -> Any:
    """Return the words of `philox`, for int64 tensors or NumPy arrays."""
    (a, b, c, d), (low, high) = counter, key
    for _ in range(_ROUNDS):
        top, bottom = _product(_FACTORS[0], a)
        upper, lower = _product(_FACTORS[1], c)
        a, b, c, d = upper ^ b ^ low, lower, top ^ d ^ high, bottom
        low, high = (low + _STEPS[0]) & _WORD, (high + _STEPS[1]) & _WORD
    return a, b, c, d


def _product(factor: int, word: Any) -> tuple[Any, Any]:
    """Return the upper and lower 32 bits of the product of two 32-bit words; int64 holds all but its sign."""
    product = word * factor
    return (product >> 32) & _WORD, product & _WORD


def state_of(key: Tensor, context: Tensor) -> tuple[Tensor, ...]:
    """Return the five state words [R] for the numbers of tokens after contexts [R, W].

    key [R] int64 has the 64 bits of each row's key; ids of -1 pad a context that is shorter than W.
    """
    low, high = key & _WORD, (key >> 32) & _WORD
    zero = torch.zeros_like(key)
    state: _Words = (zero + _CONTEXT, zero + context.shape[1], zero, zero)
    columns: Sequence[Tensor] = (context & _WORD).unbind(1)
    for first in range(0, len(columns), 4):
        block = list(columns[first : first + 4])
        block += [zero + (_WORD - index) for index in range(len(block), 4)]
        mixed = [word ^ other for word, other in zip(state, block, strict=True)]
        state = philox((mixed[0], mixed[1], mixed[2], mixed[3]), (low ^ first, high))
    return (*state[:3], low ^ state[3], high ^ _TOKEN)


def uniforms(state: Sequence[Tensor], ids: Tensor) -> Tensor:
    """Return the uniform numbers in (0, 1) of ids, float64 with the value of a float32, broadcast.

    `state`: the five words by row or by id, from `state_of`.
    """
    first, second, third, low, high = state
    words = philox((ids >> 2, first, second, third), (low, high))
    word, lane = words[0], ids & 3
    for index in range(1, 4):
        word = torch.where(lane == index, words[index], word)
    numbers: Tensor = ((word >> (32 - _BITS)) + 1).double() / (2**_BITS + 1)
    return numbers.float().double()


def gumbel_of(uniform: Tensor) -> Tensor:
    """Return the Gumbel noise -ln(-ln u) in float64, for uniform numbers u."""
    return -torch.log(-torch.log(uniform))


BLOCK_DEPTHS = 10  # depths computed at once, for 2 ** 10 classes of tokens
_MULTIPLIER = 6364136223846793005  # multiplier of the generator in newlib and musl


def accumulated(state: Tensor, ids: Tensor) -> Tensor:
    """Return the hash [..., N] of ids [..., N] appended to a state, in wrapping int64; it begins with 1."""
    return (state + ids) * _MULTIPLIER + 1


class Tournament:
    """The pseudorandom bits g that the keys give to tokens after contexts."""

    def __init__(self, params: SynthIdParams, device: torch.device) -> None:
        assert params.key is not None
        self.params, self.depth = params, len(params.key.numbers)
        self._keys, self._device = params.key.numbers, device

    def hashed(self, context: Tensor) -> Tensor:
        """Return the hash [R] of contexts [R, ngram - 1]."""
        state = torch.ones_like(context[:, 0])
        for column in context.unbind(1):
            state = accumulated(state, column)
        return state

    def bits(self, context: Tensor, ids: Tensor) -> Tensor:
        """Return for each id the bits of all depths in one int64, depth 0 lowest.

        `context` holds hashes; it is broadcast with `ids`.
        """
        return self._packed.take(accumulated(context, ids) & (self.params.table_size - 1))

    @cached_property
    def table(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.params.table_seed)
        return torch.randint(0, 2, (self.params.table_size,), generator=generator).to(
            self._device, non_blocking=True
        )

    @cached_property
    def _packed(self) -> Tensor:
        low = torch.arange(self.params.table_size, device=self._device)
        packed = torch.zeros_like(low)
        for depth, key in enumerate(self._keys):
            packed |= self.table[accumulated(low, torch.tensor(key)) & (self.params.table_size - 1)] << depth
        return packed
