"""llama.cpp, tests/test-sampling.cpp (MIT)."""

from tests.processors.vectors.case import Case, logs

_FILE = "llama.cpp tests/test-sampling.cpp"
_FOUR = logs(0.1, 0.2, 0.3, 0.4)

CASES = (
    *(
        Case(f"{_FILE} test_top_k", f"top_k={k}", _FOUR, p=p)
        for k, p in ((1, (0, 0, 0, 1)), (3, (0, 2 / 9, 3 / 9, 4 / 9)), (4, (0.1, 0.2, 0.3, 0.4)))
    ),
    *(
        Case(f"{_FILE} test_top_n_sigma", f"top_n_sigma={n}", _FOUR, p=p)
        for n, p in ((1, (0, 0, 3 / 7, 4 / 7)), (0, (0.1, 0.2, 0.3, 0.4)), (3, (0.1, 0.2, 0.3, 0.4)))
    ),
)

_FIVE = logs(0.2, 0.2, 0.2, 0.2, 0.2)
_LETTERS = ("a", "b", "c", "x", "e")

HISTORY = (
    *(
        Case(f"{_FILE} test_penalties", "repetition:penalty=50,exempt=[]", _FIVE, p=p, output=output)
        for output, p in (
            ((0,), (0, 0.25, 0.25, 0.25, 0.25)),
            ((0, 1, 2), (0, 0, 0, 0.5, 0.5)),
            ((0, 1, 2, 0, 0), (0, 0, 0, 0.5, 0.5)),
        )
    ),
    *(
        Case(f"{_FILE} test_penalties", "frequency=5 | presence=5", _FIVE, p=p, output=output)
        for output, p in (
            ((0,), (0.000011, 0.249997, 0.249997, 0.249997, 0.249997)),
            ((0, 1, 2), (0.000023, 0.000023, 0.000023, 0.499966, 0.499966)),
            ((0, 1, 2, 0, 0), (0, 0.000023, 0.000023, 0.499977, 0.499977)),
        )
    ),
    *(
        Case(
            f"{_FILE} test_dry",
            f"dry:multiplier={multiplier},base=1.1,allowed={allowed},window={window},breakers=[{breaker}],exempt=[]",
            _FIVE[: len(p)], p=p, output=output, texts=_LETTERS[: len(p)],
        )
        for p, output, multiplier, allowed, window, breaker in (
            ((0.25,) * 4, (0, 1), 1, 2, 4, ""),
            ((0.296923, 0.296923, 0.109232, 0.296923), (0, 1, 2, 0, 1), 1, 2, 5, ""),
            ((0.2,) * 5, (0, 1, 3, 4, 0, 1), 1, 2, 6, '"x"'),
            ((0.241818, 0.241818, 0.032727, 0.241818, 0.241818), (0, 1, 2, 0, 1), 2, 2, 5, ""),
            ((0.2,) * 5, (0, 1, 2, 3, 4, 0, 1), 1, 4, 7, ""),
        )
    ),
)  # fmt: skip
