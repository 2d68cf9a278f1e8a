"""The text through the runner is the library's own, whatever shares the step.

In a batch that shares beginnings, every row has the token ids that it has alone.
"""

from __future__ import annotations

import pytest

from tests.models.tiny_models import CONFIGS, NATIVE_CONFIGS
from tests.slow.models.test_hf_text import (
    SUITE,
    case_of,
    check_continuation,
    check_drafts,
    check_ids,
    check_schedules,
    check_spec,
)

KINDS = [*CONFIGS, *(f"native-{kind}" for kind in NATIVE_CONFIGS)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SUITE])
def test_all_other_models_have_the_texts_of_the_library(kind: str) -> None:
    for check in (check_spec, check_schedules, check_drafts, check_continuation):
        check(case_of(kind))


@pytest.mark.parametrize("kind", ["tiny", "llama", "gpt2"])
def test_ids_of_many_rows_are_those_of_the_row_alone(kind: str) -> None:
    check_ids(kind, 200)
