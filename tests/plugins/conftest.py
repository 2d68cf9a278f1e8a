"""Plugins as files, and as packages that are installed: a real entry point on a real path."""

import shutil

import pytest

from tests.cli.conftest import gencli, run

__all__ = ["gencli", "run"]
HEAD = """
from dataclasses import dataclass
import torch
from processors import Params, Phase, Processor, param
"""
PARAMS = """
@dataclass(frozen=True, slots=True)
class OnlyParams(Params):
    '''Allow one id.'''
    id: int = param(-1, "The one id that may be chosen; -1 is off.", ge=-1)
"""
STAGE = """
class Only(Processor[OnlyParams]):
    name = "only"
    phase = Phase.CONSTRAIN
    Params = OnlyParams

    def apply(self, logits, rows):
        ids = torch.arange(logits.shape[1])
        return logits.masked_fill(ids != self.columns.gather("id", rows)[:, None], -torch.inf)
"""
ONLY = HEAD + PARAMS + STAGE  # a sound plugin


@pytest.fixture
def plugin(tmp_path):
    """Call `plugin(code)`: the path of a file with it."""

    def write(code, name="my_plugin.py"):
        path = tmp_path / name
        path.write_text(code, encoding="utf-8")
        # Python would run the bytecode of an earlier file that was as long and as old, in seconds.
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        return path

    return write


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Call `install(name="module:Class", code=...)`: a package with these entry points and one module."""
    monkeypatch.delenv("GENCLI_NO_PLUGINS", raising=False)

    def make(module, code, *, package="gencli-test", **points):
        home = tmp_path / package
        info = home / f"{package.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {module}:{attribute}" for name, attribute in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[gencli.processors]", *lines, ""]))
        (home / f"{module}.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(home)

    return make
