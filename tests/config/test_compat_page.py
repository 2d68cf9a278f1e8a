"""docs/reference/compat.md says what the profiles are, and names every stage."""

import csv

from processors.catalog import BUILTIN
from scripts.compat_docs import PAGE, TABLE, TITLES, page
from tests.helpers.profiles import PROFILES


def test_the_page_is_what_the_profiles_say_and_has_every_stage():
    assert page() == PAGE.read_text(encoding="utf-8"), "run scripts/compat_docs.py"

    with TABLE.open(encoding="utf-8", newline="") as file:
        stages = [row["stage"] for row in csv.DictReader(file)]
    assert {spec.name for spec in BUILTIN} - {"tail"} <= set(stages)
    assert len(stages) == len(set(stages))
    assert set(TITLES) <= set(PROFILES)
