"""Download wheels for a GPU machine without a network: what gencli and its tests need and the machine lacks.

    .venv/bin/python scripts/gpu/wheels.py

Run in the repository's root, with the environment of `make test`. Fills .whl/ (15 MB, excluded from git) with
the wheels, `first_card.sh`, `bench.py` and `step_profile.py`. There: `bash .whl/first_card.sh OUT` in the
repository's root.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("serve", "pydantic")
TESTS = ("pytest-timeout", "hypothesis")  # what the tests of a card need of `dev`
PYTHON = "3.12"
# What the machine has: an image with CUDA, PyTorch and what scientists use.
THERE = set(
    """
    torch triton transformers tokenizers huggingface-hub safetensors numpy typer click shellingham
    jinja2 markupsafe pyyaml pytest pytest-xdist execnet iniconfig pluggy packaging pygments markdown-it-py
    mdurl attrs typing-extensions anyio h11 tqdm requests filelock fsspec hf-xet httpx sniffio sympy networkx
    mpmath setuptools annotated-doc exceptiongroup tomli
    """.split()
)


def named(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(]", requirement.strip())[0]).lower()


def wanted() -> list[str]:
    """The names of the packages to carry: those of pyproject.toml with what they need, as installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    todo = [
        named(one)
        for one in (*project["dependencies"], *(r for name in EXTRAS for r in extras[name]), *TESTS)
    ]
    names: set[str] = set()
    while todo:
        name = todo.pop()
        if name in names or name in THERE:
            continue
        names.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # not installed here, as it is for another Python
            names.discard(name)
            continue
        todo += [named(one) for one in needed if "extra ==" not in one]
    return sorted(names)


def main() -> None:
    exclude, folder = ROOT / ".git" / "info" / "exclude", ROOT / ".whl"
    if "/.whl/" not in exclude.read_text().splitlines():
        exclude.write_text(exclude.read_text() + "/.whl/\n")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (39, 38, 36, 35, 34, 31, 30, 28, 27, 24, 17, 5)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", PYTHON, "--implementation", "cp", "--dest", str(folder)]
    for platform in ("manylinux2014_x86_64", *platforms):
        command += ["--platform", platform]
    subprocess.run([*command, *wanted()], check=True)
    for name in ("first_card.sh", "bench.py", "step_profile.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    print(f"{len(list(folder.glob('*.whl')))} wheels in {folder}")


if __name__ == "__main__":
    main()
