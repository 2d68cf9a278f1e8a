"""Compiling a plan: what is known afterwards of the variant that runs."""

import json

from gencli.structured.compiling import compile_plan
from gencli.structured.plan import Audit, Plan, Variant
from processors.grammar.compiler import GrammarCompiler
from processors.grammar.constraint import Constraint
from tests.processors.grammar.kit import env_of


def test_the_warnings_of_a_back_end_are_kept(capfd):
    schema = json.dumps({"type": "string", "pattern": "^a", "maxLength": 3})
    variant = Variant(Constraint("json_schema", schema, "xgrammar"), Audit("xgrammar"))
    compiler = GrammarCompiler(env_of("toy"))
    found = compile_plan(Plan((variant,)), compiler)
    compiler.close()
    assert any("pattern" in warning for warning in found.warnings)
    assert capfd.readouterr().err == ""
