"""A Python caller plans, compiles and validates an output from a schema alone, without a command line."""

from gencli.runtime.compiled_grammars import compile_plan
from gencli.structured.output_spec import DOCUMENTS, KINDS, OutputValidator
from gencli.structured.planning import PlanRequest, plan_output
from processors.grammar.grammar_compiler import GrammarCompiler
from tests.processors.grammar.kit import env_of

SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


def test_a_schema_is_planned_compiled_and_validated():
    spec = plan_output("json_schema", SCHEMA, PlanRequest(whitespace=0))
    compiler = GrammarCompiler(env_of("toy"))
    variant = compile_plan(spec.plan, compiler).variant
    compiler.close()
    assert variant == spec.plan.variants[0]
    assert variant.audit.is_exact

    validator = OutputValidator(spec)
    assert validator.validate('{"age": 3}').value == {"age": 3}
    assert validator.validate('{"age": "3"}').faults == ('/age: "3" is not of type "integer"',)
    assert not validator.validate('{"age": 3').is_valid


def test_documents_are_kinds_of_outputs():
    assert set(DOCUMENTS) < set(KINDS)
    assert plan_output("json", True).is_document
    assert not plan_output("regex", "a+").is_document
