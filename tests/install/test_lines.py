"""The lines of README's section Install, in a fresh environment, and what they bring."""

import os
import re
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().partition("\n## Install\n")[2].partition("\n## ")[0]
LINES = [line.partition("#")[0].strip() for line in re.findall(r"^pip install .*", SECTION, re.MULTILINE)]
EXTRAS = {"serve": "uvicorn", "cpu": "llvmlite", "batch": "pyarrow", "pydantic": "pydantic",
          "multi-gpu": "accelerate", "ray": "ray", "plots": "matplotlib"}  # fmt: skip


def called(*command, folder, **env):
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | env
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=env).stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh environment, with pip's settings: the build of torch that constraints.txt names."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    return folder / "bin"


@pytest.mark.timeout(1500)  # fetches and unpacks gigabytes
def test_each_line_installs_what_it_says(environment, tmp_path):
    torch, plain, *extras = LINES
    assert torch.startswith(
        "pip install torch --index-url"
    )  # another registry; the constraint is its build here
    assert plain == "pip install ."
    assert [re.search(r"\[(.*)\]", line)[1] for line in extras] == list(EXTRAS)
    story = ("run", "-q", "--seed", "7", "--preset", "balanced", "Once")
    for line in (plain, *extras):
        words = line.replace("'", "").split()
        settings = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        called(environment / words[0], *words[1:], "--quiet", folder=ROOT, **settings)
        if line == plain:
            told = called(environment / "gencli", *story, folder=tmp_path)
            assert told == called(sys.executable, "-m", "gencli", *story, folder=ROOT)
    told = called(environment / "gencli", "doctor", folder=tmp_path)
    for extra, package in EXTRAS.items():
        assert re.search(rf"^ok +extra +{extra} +installed", told, re.MULTILINE), extra
        called(environment / "python", "-c", f"import {package}", folder=tmp_path)


def test_the_source_distribution_is_whole(environment, tmp_path):
    command = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path)
    called(*command, folder=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    tracked = called("git", "ls-files", "gencli", "processors", "configs", "tests", folder=ROOT).split()
    assert set(tracked) - names == set()
    called(
        environment / "pip", "install", "--quiet", "--no-deps", "--force-reinstall", archive, folder=tmp_path
    )
    version = called(environment / "gencli", "--version", folder=tmp_path)
    assert version == called(sys.executable, "-m", "gencli", "--version", folder=ROOT)
    assert "balanced" in called(environment / "gencli", "config", "list", folder=tmp_path)
