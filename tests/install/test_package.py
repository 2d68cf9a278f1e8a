"""The wheel of gencli, installed into an empty folder, is whole: it writes the same texts."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], check=True, cwd=ROOT
    )
    (path,) = folder.glob("*.whl")
    return path


def test_an_installed_wheel_writes_the_texts_of_the_checkout(wheel, tmp_path):
    options = ("--no-deps", "--no-index", "--disable-pip-version-check", "--quiet", "--target", tmp_path)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)

    def said(folder, *arguments):
        command = [sys.executable, "-m", "gencli", *arguments]
        env = os.environ | {"PYTHONPATH": str(folder)}
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=env, check=True
        ).stdout

    for arguments in (
        ("--version",),
        ("config", "list"),
        ("run", "-q", "--preset", "balanced", "--seed", "7", "Once"),
    ):
        assert said(tmp_path, *arguments) == said(ROOT, *arguments), arguments


def test_the_wheel_has_what_the_packages_hold(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("gencli", "processors"):
        command = ["git", "ls-files", package]
        tracked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
        assert set(tracked) - names == set()
