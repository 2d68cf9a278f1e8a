"""What an installed back end accepts, byte by byte: the texts it lets through to their end."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

import llguidance
import xgrammar
from llguidance._tokenizer import TokenizerWrapper

from processors.grammar.json_grammars import as_lark, grammar_of_schema

__all__ = ["VERSIONS", "Refused", "acceptor"]

VERSIONS = {name: version(name) for name in ("xgrammar", "llguidance")}
END = 256
BYTES = [bytes([code]) for code in range(256)]


class Refused(Exception):
    """The back end makes no grammar of the schema."""


def acceptor(backend: str, schema: Any, whitespace: int = 8) -> Callable[[str], bool]:
    """Whether a text is accepted and complete. Refused if the schema does not compile."""
    return {"xgrammar": _xgrammar, "llguidance": _llguidance}[backend](json.dumps(schema), whitespace)


@cache
def _compiler() -> xgrammar.GrammarCompiler:
    info = xgrammar.TokenizerInfo([*BYTES, b""], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


def _xgrammar(schema: str, whitespace: int) -> Callable[[str], bool]:
    try:
        compiled = _compiler().compile_grammar(grammar_of_schema(xgrammar, schema, whitespace))
    except RuntimeError as error:
        raise Refused(str(error)) from None

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()

    return accepts


class _Bytes:
    eos_token_id = END
    bos_token_id = None
    tokens = (*BYTES, b"\xff<end>")
    special_token_ids = (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(TokenizerWrapper(_Bytes()), slices=[])


def _llguidance(schema: str, whitespace: int) -> Callable[[str], bool]:
    space = {"whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{whitespace}}}"}
    lark = as_lark(json.loads(schema), whitespace)
    if lark is not None:
        grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    else:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=space)
    start = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0)
    if start.is_error():
        raise Refused(start.get_error())

    def accepts(text: str) -> bool:
        matcher = start.deep_copy()
        tokens = list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    return accepts
