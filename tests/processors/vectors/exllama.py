"""exllamav3, tests/test_sampler.py (MIT)."""

from tests.processors.vectors.case import Case

_FILE = "exllamav3 tests/test_sampler.py"
_WIDE, _TEN = (2.0,) * 256_000, (2.0,) * 10
_FADED = (2, 2, 2, 1.75, 1.5, 1.25, 1, 1, 1, 1)


def _wide(values):
    """The wide row with these values by id."""
    return tuple(values.get(token, 2.0) for token in range(len(_WIDE)))


_BOTH = "frequency:penalty={0},scope=both | presence:penalty={0},scope=both"

HISTORY = (
    Case(f"{_FILE} presfreq_p-1", _BOTH.format(0.5), _WIDE,
         logits_after=_wide({0: 1, 1000: 0.5, 20_000: 1, 200_000: 1}),
         prompt=(0, 1000, 20_000, 200_000, 1000)),
    Case(f"{_FILE} presfreq_p-2", _BOTH.format(1), (10.0,) * 10,
         logits_after=(6, 3, 10, 10, 10, 10, 10, 10, 10, 8), prompt=(0, 0, 0, 1, 1, 1, 1, 1, 1, 9)),
    Case(f"{_FILE} presfreq_p-3", "presence:penalty=1,scope=both", _TEN, logits_after=_FADED,
         prompt=tuple(range(10)), differs="25: of the penalties, repetition alone fades"),
    Case(f"{_FILE} rep_p-1", "repetition=2", _WIDE,
         logits_after=_wide({0: 1, 1000: 1, 20_000: 1, 200_000: 1}), prompt=(0, 1000, 20_000, 200_000)),
    Case(f"{_FILE} rep_p-2", "repetition:penalty=2,sustain=4,decay=4,decay_space=logit", _TEN,
         logits_after=_FADED, prompt=tuple(range(10))),
    Case(f"{_FILE} rep_p-3", "repetition=2", (2, 2, -2, 2, 2, 2), logits_after=(2, 1, -4, 1, 2, 2),
         prompt=(1, 2, 3)),
)  # fmt: skip
