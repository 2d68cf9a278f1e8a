"""Every golden case of another system gives what it says there, or differs by a documented decision."""

import runpy
from pathlib import Path


def test_the_page_lists_the_cases():
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "vector_table.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run scripts/vector_table.py"
