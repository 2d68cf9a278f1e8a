"""The declarations of the built-in stages: their order, their code and their notes."""

import subprocess
import sys
from importlib import import_module

from processors.catalog import BUILTIN
from processors.chain import parse_stage


def test_the_default_order_is_that_of_the_phases():
    assert [spec.phase for spec in BUILTIN] == sorted(spec.phase for spec in BUILTIN)


def test_a_declaration_is_that_of_its_code():
    for spec in BUILTIN:
        module, name = spec.target.split(":")
        stage = getattr(import_module(module), name)
        assert (stage.name, stage.phase, stage.Params) == (spec.name, spec.phase, spec.params), spec


def test_the_example_of_a_note_switches_its_stage_on():
    for spec in BUILTIN:
        name, params = parse_stage(spec.note.example)
        assert name == spec.name, spec
        assert not params.is_off(), spec


def test_declarations_need_no_torch():
    code = "import sys, processors.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
