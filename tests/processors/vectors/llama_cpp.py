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

TEMPERATURE = tuple(
    Case(f"{_FILE} {test}", chain, _FOUR, p=p)
    for test, chain, p in (
        ("test_temp", "temperature=1", (0.1, 0.2, 0.3, 0.4)),
        ("test_temp", "temperature=0", (0, 0, 0, 1)),
        ("test_temp_ext", "temperature=1 | dynamic_temperature:range=0,exponent=1", (0.1, 0.2, 0.3, 0.4)),
        ("test_temp_ext", "temperature=0 | dynamic_temperature:range=0,exponent=1", (0, 0, 0, 1)),
    )
)
