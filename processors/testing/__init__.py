"""The contract kit: checks of what every stage promises, for built-in and plug-in stages.

from processors.testing import check_stage

for result in check_stage(MyStage):
    assert result.passed, result
"""

from __future__ import annotations

from processors.testing.bench import Bench, Subject, Text, random_logits, toy_env
from processors.testing.checks import CHECKS, Check, CheckResult, check_stage, run_check
from processors.testing.examples import EXAMPLES, examples
from processors.testing.shrink import shrink
from processors.testing.vocabulary import ToyVocabulary

__all__ = [
    "CHECKS",
    "EXAMPLES",
    "Bench",
    "Check",
    "CheckResult",
    "Subject",
    "Text",
    "ToyVocabulary",
    "check_stage",
    "examples",
    "random_logits",
    "run_check",
    "shrink",
    "toy_env",
]
