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

_DOWN = logs(0.4, 0.3, 0.2, 0.1)
_FIVE = logs(0.1, 0.15, 0.2, 0.25, 0.3)
# Ten thousand logits ln(id): what stays are the ids from a number on, which their test derives from sums.
_QUEUE = tuple(logs(*range(10_000)))
_K, _P, _M, _HIGH = "top_k=100", "top_p=0.8", "min_p=0.1", f"min_p={9997.9 / 9999}"

TRUNCATION = (
    Case(f"{_FILE} test_top_k", "top_k=0", _FOUR, p=(0.1, 0.2, 0.3, 0.4)),
    *(
        Case(f"{_FILE} test_top_p", f"top_p={p}", _FOUR, p=left)
        for p, left in ((0, (0, 0, 0, 1)), (0.8, (0, 2 / 9, 3 / 9, 4 / 9)), (1, (0.1, 0.2, 0.3, 0.4)))
    ),
    Case(f"{_FILE} test_top_p", "top_p=0.7", _FOUR, p=(0, 0, 3 / 7, 4 / 7)),
    *(
        Case(f"{_FILE} test_min_p", f"min_p={p}", _FOUR, p=left)
        for p, left in (
            (0, (0.1, 0.2, 0.3, 0.4)),
            (0.24, (0.1, 0.2, 0.3, 0.4)),
            (0.26, (0, 2 / 9, 3 / 9, 4 / 9)),
            (0.49, (0, 2 / 9, 3 / 9, 4 / 9)),
            (0.51, (0, 0, 3 / 7, 4 / 7)),
            (0.74, (0, 0, 3 / 7, 4 / 7)),
            (0.76, (0, 0, 0, 1)),
            (1, (0, 0, 0, 1)),
        )
    ),
    Case(
        f"{_FILE} test_min_p",
        "min_p=1.05",
        _FOUR,
        p=(0, 0, 0, 1),
        differs="[10]: p above 1 is refused",
    ),
    *(
        Case(f"{_FILE} test_xtc", f"xtc:probability=0.99,threshold={threshold}", _DOWN, kept=kept)
        for threshold, kept in ((0.09, (3,)), (0.19, (2, 3)), (0.29, (1, 2, 3)), (0.39, (0, 1, 2, 3)))
    ),
    *(
        Case(f"{_FILE} test_typical", f"typical:p=0.5,boundary={boundary}", row, kept=kept)
        for row, kept in ((logs(0.97, 0.01, 0.01, 0.01), (0,)), (logs(0.4, 0.2, 0.2, 0.2), (1, 2, 3)))
        for boundary in ("strict", "inclusive")
    ),
    Case(f"{_FILE} test_p_less", "p_less=2", _FIVE, p=(0, 0, 0, 5 / 11, 6 / 11)),
    Case(f"{_FILE} test_p_less", "p_less=2", logs(*(0.2,) * 5), p=(0.2,) * 5),
    *(
        Case(f"{_FILE} test_sampler_queue", chain, _QUEUE, kept=tuple(range(first, 10_000)))
        for chain, first in (
            ("top_k=10000", 1),
            ("top_k=1", 9999),
            ("top_p=1", 1),
            ("top_p=0", 9999),
            ("min_p=1", 9999),
            ("min_p=1e-12", 1),
            (_K, 9900),
            ("top_p=0.0003", 9998),
            (_P, 4472),
            (_HIGH, 9998),
            (_M, 1000),
            (f"{_K} | {_P}", 9920),
            (f"{_K} | {_M}", 9900),
            (f"{_P} | {_K}", 9900),
            (f"{_P} | {_M}", 4472),
            (f"{_M} | {_K}", 9900),
            (f"{_HIGH} | {_P}", 9998),
            (f"{_M} | {_P}", 4560),
            (f"{_K} | {_P} | {_M}", 9920),
            (f"{_K} | {_M} | {_P}", 9920),
            (f"{_P} | {_K} | {_M}", 9900),
            (f"{_P} | {_M} | {_K}", 9900),
            (f"{_M} | {_K} | {_P}", 9920),
            (f"{_M} | {_P} | {_K}", 9900),
        )
    ),
)
_EQUAL = logs(0.2, 0.2, 0.2, 0.2, 0.2)
_LETTERS = ("a", "b", "c", "x", "e")

HISTORY = (
    *(
        Case(f"{_FILE} test_penalties", "repetition:penalty=50,exempt=[]", _EQUAL, p=p, output=output)
        for output, p in (
            ((0,), (0, 0.25, 0.25, 0.25, 0.25)),
            ((0, 1, 2), (0, 0, 0, 0.5, 0.5)),
            ((0, 1, 2, 0, 0), (0, 0, 0, 0.5, 0.5)),
        )
    ),
    *(
        Case(f"{_FILE} test_penalties", "frequency=5 | presence=5", _EQUAL, p=p, output=output)
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
            _EQUAL[: len(p)], p=p, output=output, texts=_LETTERS[: len(p)],
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


TEMPERATURE = tuple(
    Case(f"{_FILE} {test}", chain, _FOUR, p=p)
    for test, chain, p in (
        ("test_temp", "temperature=1", (0.1, 0.2, 0.3, 0.4)),
        ("test_temp", "temperature=0", (0, 0, 0, 1)),
        ("test_temp_ext", "temperature=1 | dynamic_temperature:range=0,exponent=1", (0.1, 0.2, 0.3, 0.4)),
        ("test_temp_ext", "temperature=0 | dynamic_temperature:range=0,exponent=1", (0, 0, 0, 1)),
    )
)
