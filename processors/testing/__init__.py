"""The contract kit: checks of what every stage promises, for built-in and plug-in stages.

from processors.testing import check_stage

for result in check_stage(MyStage):
    assert result.passed, result
"""

from __future__ import annotations

from processors.testing.checks import (
    CHECKS,
    Bench,
    Check,
    CheckResult,
    Subject,
    Text,
    Twin,
    View,
    check_stage,
    random_logits,
    run_check,
    shrink,
    toy_env,
)
from processors.testing.examples import EXAMPLES, ToyVocabulary, examples

__all__ = [
    "CHECKS",
    "EXAMPLES",
    "Bench",
    "Check",
    "CheckResult",
    "Subject",
    "Text",
    "ToyVocabulary",
    "Twin",
    "View",
    "check_stage",
    "examples",
    "random_logits",
    "run_check",
    "shrink",
    "toy_env",
]
