"""Constraints run on the bytes of whole texts, without a model's tokens, and schemas enforced as they are."""

import json
from functools import lru_cache

import xgrammar
from llguidance import LLMatcher, LLTokenizer
from xgrammar import Grammar, GrammarCompiler, GrammarMatcher, TokenizerInfo

from gencli.structured.output_spec import Audit, KeywordFinding, Plan, Variant
from gencli.structured.tool_calls import Schemas
from processors.grammar.json_grammars import grammar_of_schema, with_schema_grammars
from processors.request_values import Constraint

END = 256


def accepts(constraint):
    """A function that tells whether a text is a whole output of the constraint."""
    return _xgrammar(constraint) if constraint.backend == "xgrammar" else _llguidance(constraint)


def all_accept(plan):
    """One function for each variant of the plan."""
    return [accepts(variant.constraint) for variant in plan.variants]


@lru_cache(maxsize=1)
def _compiler():
    # The end token has no bytes, as in the product: xgrammar 0.2.9 reads those of a stop token as text.
    vocabulary = [*(bytes([byte]) for byte in range(END)), b""]
    return GrammarCompiler(TokenizerInfo(vocabulary, vocab_size=END + 1, stop_token_ids=[END]))


def _xgrammar(constraint):
    read = {
        "regex": Grammar.from_regex,
        "ebnf": Grammar.from_ebnf,
        "structural_tag": lambda text: Grammar.from_structural_tag(
            with_schema_grammars(xgrammar, json.loads(text), constraint.whitespace)
        ),
        "json_schema": lambda text: Grammar.from_ebnf(
            grammar_of_schema(xgrammar, text, constraint.whitespace)
        ),
    }
    compiled = _compiler().compile_grammar(read[constraint.kind](constraint.text))

    def accept(text):
        matcher = GrammarMatcher(compiled)
        return all(matcher.accept_token(token) for token in (*text.encode(), END))

    return accept


def _llguidance(constraint):
    read = {
        "regex": LLMatcher.grammar_from_regex,
        "lark": LLMatcher.grammar_from_lark,
        "json_schema": LLMatcher.grammar_from_json_schema,
    }
    start = LLMatcher(LLTokenizer("byte"), read[constraint.kind](constraint.text), log_level=0)
    assert not start.is_error(), start.get_error()

    def accept(text):
        matcher, data = start.deep_copy(), list(text.encode())
        return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()

    return accept


def choose(schema):
    """The schema itself, for either back end; `not` for xgrammar alone, which leaves it to the check."""
    text = json.dumps(schema)
    findings = (KeywordFinding("/not", "not", "check", "not enforced"),) if "not" in schema else ()
    variants = [Variant(Constraint("json_schema", text, "xgrammar"), Audit("xgrammar", findings))]
    if not findings:
        variants.append(Variant(Constraint("json_schema", text, "llguidance"), Audit("llguidance")))
    return Plan(tuple(variants), schema=schema)


SCHEMAS = Schemas(choose)
