"""exllamav3, tests/test_sampler.py (MIT)."""

from tests.processors.vectors.case import Case, shares

_FILE = "exllamav3 tests/test_sampler.py"
_UP = (3.0, 3.5, 4.0, 4.5, 5.0, 5.5)
_DOWN, _NEAR = (2.0, 1.0, 0.0, -1.0), (2.0, 1.0, 0.5, -1.0)
# What their test gives does not sum up to 1.
_WEIGHTS, _SUNK = (0, 0.236883, 0.087144, 0.032059), (0.169081, 0.236883, 0.087144, 0.032059)
_THEIRS = "mode=expected,on_exempt=uncount"

TRUNCATION = (
    Case(
        f"{_FILE} temp_top_p_sample",
        "temperature=0.75 | top_p:p=0.95,boundary=exclusive",
        (5.0, 3.0, 2.5, 1.0, 4.0, 2.0, 1.5),
        p=(0.79139, 0, 0, 0, 0.20861, 0, 0),
    ),
    Case(
        f"{_FILE} temp_top_p_sample",
        "temperature=0.75 | top_p=0.95",
        (5.0, 3.0, 2.5, 1.0, 4.0, 2.0, 1.5),
        p=(0.79139, 0, 0, 0, 0.20861, 0, 0),
        differs="[7]: the token that crosses p stays",
    ),
    Case(f"{_FILE} min_p_sample", "min_p=0.16", _UP, p=(0, 0, 0.10154, 0.16741, 0.27600, 0.45505)),
    Case(
        f"{_FILE} top_k",
        "top_k=5",
        (3.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 2.9),
        kept=(0, 6, 7, 8, 9),
    ),
    *(
        Case(f"{_FILE} {name}", f"xtc:probability={probability},threshold={threshold}{rest}", row, p=p)
        for name, probability, threshold, more, row, p in (
            ("xtc", 1, 0.1, "", _DOWN, shares(*_WEIGHTS)),
            ("xtc_single_candidate", 1, 0.3, "", _DOWN, (0.643914, 0.236883, 0.087144, 0.032059)),
            ("xtc_unprotected", 1, 0.1, "", _NEAR, shares(0, 0, 0.135989, 0.030343)),
            ("xtc_protected_token", 1, 0.1, ",exempt=[2]", _NEAR, shares(0, 0.224208, 0.135989, 0.030343)),
            ("xtc_partial_probability", 0.5, 0.1, "", _DOWN, shares(*_SUNK)),
        )
        for rest in (f",{_THEIRS}{more}",)
    ),
)
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

TEMPERATURE = (
    # Their logits after the temperature are 1, 3 and 4.
    Case(
        f"{_FILE} ban_tokens_after_temperature",
        "temperature=2 | suppress=[1]",
        (2.0, 4.0, 6.0, 8.0),
        p=(0.03511903, 0, 0.25949646, 0.70538451),
    ),
)
