"""The built-in stages: which there are, their order and their notes."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import torch

from processors import stages
from processors.catalog import BUILTIN, STAGES
from processors.chain import parse_stage
from processors.stages import scale


def test_the_default_order_is_that_of_the_phases():
    assert [spec.phase for spec in BUILTIN] == sorted(spec.phase for spec in BUILTIN)


def test_the_order_has_each_stage_that_there_is():
    modules = [import_module(f"processors.stages.{module.name}") for module in iter_modules(stages.__path__)]
    classes = {value for module in modules for value in vars(module).values() if hasattr(value, "about")}
    assert {stage for stage in classes if stage.about} == set(STAGES)


def test_the_example_of_a_note_switches_its_stage_on():
    for spec in BUILTIN:
        name, params = parse_stage(spec.note.example)
        assert name == spec.name, spec
        assert not params.is_off(), spec


DECLARED = """
import sys
from processors.catalog import BUILTIN
from processors.base import Env, Processor
from processors.stages import scale

assert "torch" not in sys.modules and "numpy" not in sys.modules
scale.torch.float32
assert "torch" in sys.modules
"""


def test_declarations_need_no_torch_until_it_is_used():
    assert subprocess.run([sys.executable, "-c", DECLARED], check=False).returncode == 0


def test_a_file_that_used_torch_has_torch_itself():
    scale.cool_(torch.zeros(1, 2), torch.zeros(1, 1), 1.0)
    assert scale.torch is torch
