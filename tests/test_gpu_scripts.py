"""The scripts for the first minutes on a card name files, tests and commands that there are."""

import re
import runpy
import subprocess
from pathlib import Path

from gencli.config.run_options import OPTIONS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "scripts" / "gpu"
SCRIPT = (FOLDER / "first_card.sh").read_text(encoding="utf-8")


def test_the_shell_script_is_one_and_finds_the_tests_of_a_card():
    subprocess.run(["bash", "-n", FOLDER / "first_card.sh"], check=True)
    pattern = SCRIPT.split("grep -rlE '", 1)[1].split("'", 1)[0]
    command = ["grep", "-rlE", pattern, "tests", "--include=test_*.py"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    rooms = {Path(path).parent.name for path in listed}
    assert {"gpu", "kernels", "choice", "products"} <= rooms


def test_its_options_are_options_of_gencli():
    flags = {name for entry in OPTIONS for name in entry.names}
    runs = [line for line in SCRIPT.splitlines() if "-m gencli run" in line]
    assert len(runs) == 2
    for line in runs:
        assert set(re.findall(r"(?<!\w)--[a-z][a-z-]+", line)) - {"--"} <= flags | {"--stats"}


def test_the_benchmark_and_the_wheels_import_what_there_is():
    bench, wheels = (runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("bench", "wheels"))
    assert {"1B", "8B"} <= set(bench["SHAPES"])
    carried = wheels["wanted"]()
    assert {"xgrammar", "llguidance", "jsonschema", "hypothesis", "pytest-timeout", "regex"} <= set(carried)
    assert wheels["THERE"].isdisjoint(carried)
