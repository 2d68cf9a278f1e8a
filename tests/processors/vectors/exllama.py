"""exllamav3, tests/test_sampler.py (MIT)."""

from tests.processors.vectors.case import Case

_FILE = "exllamav3 tests/test_sampler.py"

TEMPERATURE = (
    # Their logits after the temperature are 1, 3 and 4.
    Case(
        f"{_FILE} ban_tokens_after_temperature",
        "temperature=2 | suppress=[1]",
        (2.0, 4.0, 6.0, 8.0),
        p=(0.03511903, 0, 0.25949646, 0.70538451),
    ),
)
