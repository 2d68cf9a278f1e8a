"""The kernels of a choice take no float64 for logits, and the instructions that predictions count with."""

import pytest
from choice_work import FACTS, LIST, LOGSUMEXP, MASS, PATCHED

from processors.kernels.choice import facts_triton, listed_triton
from processors.sampler import BLOCK
from tests.compiled.aot import builds
from tests.compiled.sass import counted

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


HOME = "processors.kernels.choice"


FLOAT64 = {"DADD", "DMUL", "DFMA"}


RARE = ("_of_error", "_of_cooled_soon/_of_cooled", "_of_finite")  # no temperature, odd numbers, -inf


def of_paths(counts, *wanted, without=()):
    """The instructions of paths that begin so, and their opcodes."""
    found = {
        key: count
        for key, count in counts.items()
        if key[0].startswith(wanted) and not any(part in key[0] for part in (*without, *RARE))
    }
    return sum(found.values()), {code for _, code in found}


def test_facts_of_blocks():
    counts = counted(f"{HOME}.facts_triton", builds(f"{HOME}.facts_triton")["facts-cuts"], 90)
    number, _ = of_paths(counts, "_kernel", without=["_of_row"])
    assert number * 256 / (BLOCK * facts_triton.EACH) <= FACTS
    assert not of_paths(counts, "_kernel/_of_facts")[1] & FLOAT64


def test_reading_logits_with_their_patches():
    counts = counted(f"{HOME}.facts_triton", builds(f"{HOME}.facts_triton")["facts-cuts-patched"], 90)
    number, _ = of_paths(counts, "_kernel/_of_logits")
    assert number * 256 / (BLOCK * facts_triton.EACH) <= PATCHED + 2  # 2 of them are there without a patch


def test_lists_and_masses():
    counts = counted(f"{HOME}.listed_triton", builds(f"{HOME}.listed_triton")["listed"], 90)
    of_a_logit = 256 / (BLOCK * listed_triton.EACH)
    number, _ = of_paths(counts, "_kernel", without=["_of_mass", "_of_listing", "_of_end"])
    assert number * of_a_logit <= LIST
    assert not of_paths(counts, "_kernel/_of_blocks")[1] & FLOAT64
    assert of_paths(counts, "_kernel/_of_blocks/_of_mass")[0] * of_a_logit <= MASS


def test_a_logsumexp_to_compare_with():
    build = {
        "kernel": "_parts",
        "signature": {"logits": "*fp32", "parts": "*fp32", "width": "i32", "stride": "i32"},
    }
    counts = counted("tests.compiled.logsumexp", build, 90)
    assert sum(counts.values()) / 16 <= LOGSUMEXP
