"""mlx-lm, tests/test_sample_utils.py (MIT)."""

from tests.processors.vectors.case import Case

_FILE = "mlx-lm tests/test_sample_utils.py"
_SEEN = (0, 0, 0, 1, 1)

HISTORY = (
    Case(f"{_FILE} test_presence_penalty", "presence:penalty=0.5,scope=both,window=5", (0.0,) * 4,
         logits_after=(-0.5, -0.5, 0, 0), prompt=_SEEN),
    Case(f"{_FILE} test_frequency_penalty", "frequency:penalty=0.5,scope=both,window=5", (0.0,) * 4,
         logits_after=(-1.5, -1.0, 0, 0), prompt=_SEEN),
    Case("formula of mlx-lm make_logits_processors",
         "repetition:penalty=1.5,window=5 | frequency:penalty=0.25,scope=both,window=5 "
         "| presence:penalty=0.5,scope=both,window=5",
         (1.0, 0.5, 0.0, -0.5), logits_after=(1 / 1.5 - 1.25, 0.5 / 1.5 - 1, 0, -0.5), prompt=_SEEN),
)  # fmt: skip
