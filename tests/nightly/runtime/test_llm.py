"""The front door: a model that is loaded once, and texts as the command line would write them."""

from pathlib import Path

import pytest
from mypy import api


def test_a_script_of_a_user_passes_the_strict_type_checker():
    script = Path(__file__).parents[2] / "runtime" / "typed_script.py"
    output, errors, code = api.run(["--strict", str(script)])
    assert code == 0, output + errors
