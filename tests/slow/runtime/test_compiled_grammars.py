"""What enforces a schema depends on the schema, the options and what is installed; never on the clock."""

import json

from gencli.runtime.compiled_grammars import compile_plan
from gencli.structured.output_spec import Audit, Plan, Variant
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.request_values import Constraint
from tests.processors.grammar.kit import env_of
from tests.runtime.test_compiled_grammars import variant


def test_the_warnings_of_a_back_end_are_kept(capfd):
    schema = json.dumps({"type": "string", "pattern": "^a", "maxLength": 3})
    variant = Variant(Constraint("json_schema", schema, "xgrammar"), Audit("xgrammar"))
    compiler = GrammarCompiler(env_of("toy"))
    found = compile_plan(Plan((variant,)), compiler)
    compiler.close()
    assert any("pattern" in warning for warning in found.warnings)
    assert capfd.readouterr().err == ""
