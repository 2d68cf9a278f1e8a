"""transformers, tests/generation/test_logits_process.py (Apache-2.0)."""

from tests.processors.vectors.case import Case

_FILE = "transformers tests/generation/test_logits_process.py"

TEMPERATURE = (
    *(
        Case(f"{_FILE} test_temperature_dist_warper", f"temperature={t}", (0.05,) * 20, p=(0.05,) * 20)
        for t in (0.5, 1.3)
    ),
)
