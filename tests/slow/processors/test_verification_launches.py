"""Kernels that the verification of a step's drafts launches on a GPU, by policy."""

import pytest
import torch

from tests.processors.test_verification_launches import launched

# With the draw of the token behind the drafts. Raise a number only for a reason.
LAUNCHES = {"match": 22, "rejection": 24, "lossy-typical": 40, "lossy-threshold": 31}


CHAIN = "temperature=0.8 | top_p=0.9"


WITH_STAGES = {"match": 25, "rejection": 21, "lossy-typical": 45, "lossy-threshold": 36}  # 74 to 92 by stages


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13")
def test_verification_launches_no_more_kernels_than_the_table_says():
    for policy in LAUNCHES:
        assert sum(launched(policy).values()) <= LAUNCHES[policy], policy
        assert sum(launched(policy, chain=CHAIN).values()) <= WITH_STAGES[policy], policy
