"""The declarations of the built-in stages: their order, their code and their notes."""

import subprocess
import sys
from importlib import import_module

import pytest

from processors.catalog import BUILTIN
from processors.chain import parse_stage


def test_the_default_order_is_that_of_the_phases():
    assert [spec.phase for spec in BUILTIN] == sorted(spec.phase for spec in BUILTIN)


@pytest.mark.parametrize("spec", BUILTIN, ids=lambda spec: spec.name)
def test_a_declaration_is_that_of_its_code(spec):
    module, name = spec.target.split(":")
    stage = getattr(import_module(module), name)
    assert (stage.name, stage.phase, stage.Params) == (spec.name, spec.phase, spec.params)


@pytest.mark.parametrize("spec", BUILTIN, ids=lambda spec: spec.name)
def test_the_example_of_a_note_switches_its_stage_on(spec):
    name, params = parse_stage(spec.note.example)
    assert name == spec.name
    assert not params.is_off()


def test_declarations_need_no_torch():
    code = "import sys, processors.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
