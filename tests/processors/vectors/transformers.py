"""transformers, tests/generation/test_logits_process.py (Apache-2.0)."""

from tests.processors.vectors.case import Case

_FILE = "transformers tests/generation/test_logits_process.py"
_EVEN, _TWENTY = (0.25,) * 4, (0.05,) * 20

FORCING = (
    Case(f"{_FILE} test_early_stop_processor", "eos_above=0.1", (0.25, 0.25, -6, 0.25), kept=(0, 1, 2, 3),
         eos=(2,)),
    Case(f"{_FILE} test_early_stop_processor", "eos_above=0.1", _EVEN, kept=(2,), eos=(2,)),
    Case(f"{_FILE} test_early_stop_processor_multi_eos", "eos_above=0.1", (0.25, 0.25, -6, -6),
         kept=(0, 1, 2, 3), eos=(2, 3)),
    Case(f"{_FILE} test_early_stop_processor_multi_eos", "eos_above=0.1", _EVEN, kept=(2, 3), eos=(2, 3)),
    # at the first place alone, and behind three more tokens
    Case(f"{_FILE} test_forced_bos_token_logits_processor", "force:ids=[0]", _TWENTY, kept=(0,)),
    Case(f"{_FILE} test_forced_bos_token_logits_processor", "force:ids=[0]", _TWENTY, kept=(*range(20),),
         output=(3, 5, 7)),
    Case(f"{_FILE} test_forced_eos_token_logits_processor", "force:ids=[0],at=tokens,after_tokens=3", _TWENTY,
         kept=(0,), output=(3, 5, 7)),
    Case(f"{_FILE} test_forced_eos_token_logits_processor", "force:ids=[0],at=tokens,after_tokens=3", _TWENTY,
         kept=(*range(20),), output=(3, 5)),
)  # fmt: skip
