"""xgrammar (https://github.com/mlc-ai/xgrammar): JSON schemas, regular expressions, EBNF, structural tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, cast

import torch
from torch import Tensor

from processors.base import Env
from processors.errors import GrammarError
from processors.grammar.compile_guards import SlowTokenGuard, caught_lines
from processors.grammar.grammar_backend import GrammarVocabulary, Matcher, NativeBackend
from processors.grammar.json_grammars import grammar_of_schema, with_schema_grammars
from processors.request_values import Constraint

# Matches "[07:50:57] /project/cpp/x.cc:1161: " and "... Check failed: (x) is false: ".
_LOCATION = re.compile(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: (?:Check failed: .*? is (?:true|false): )?")
_WARNING = re.compile(_LOCATION.pattern + "Warning: ")


class XGrammarBackend(NativeBackend):
    """The compiler of xgrammar, and the vocabulary in xgrammar's format."""

    name = "xgrammar"
    version = version("xgrammar")
    kinds = frozenset({"json_schema", "regex", "ebnf", "structural_tag"})

    def __init__(self, env: Env) -> None:
        import xgrammar

        self.vocabulary = GrammarVocabulary(env)
        self._xgrammar = xgrammar
        self._tokens = xgrammar.TokenizerInfo(
            list(self.vocabulary.token_bytes),
            xgrammar.VocabType.RAW,
            vocab_size=env.vocab_size,
            stop_token_ids=list(env.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(self._tokens, cache_enabled=False)
        self._batch = xgrammar.BatchGrammarMatcher()
        self.start = xgrammar.GrammarMatcher

    def compile_native(self, constraint: Constraint) -> XGrammarGrammar:
        text = constraint.text
        with caught_lines(lambda line: bool(_WARNING.match(line))) as lines:
            if constraint.kind == "regex":
                compiled = self._compiler.compile_regex(text)
            elif constraint.kind == "structural_tag":
                tag = with_schema_grammars(self._xgrammar, json.loads(text), constraint.whitespace)
                compiled = self._compiler.compile_structural_tag(json.dumps(tag, ensure_ascii=False))
            else:
                if constraint.kind == "json_schema":
                    text = grammar_of_schema(self._xgrammar, text, constraint.whitespace)
                compiled = self._compiler.compile_grammar(text)
        warnings = dict.fromkeys(_WARNING.sub("", line) for line in lines)  # warnings are often repeated
        return XGrammarGrammar(compiled, self, tuple(warnings))

    def reason(self, error: Exception) -> str:  # RuntimeError, ValueError and several of xgrammar
        return _LOCATION.sub("", str(error)).strip() or "it gives no reason"

    def dump(self, grammar: XGrammarGrammar) -> bytes:
        """Serialise the grammar and its warnings, for `load` with the same vocabulary."""
        return f"{json.dumps(grammar.warnings)}\n{grammar.compiled.serialize_json()}".encode()

    def load(self, data: bytes) -> XGrammarGrammar:
        """Load a serialised grammar. GrammarError if the data is invalid or for another vocabulary."""
        try:
            warnings, _, text = data.decode().partition("\n")
            compiled = self._xgrammar.CompiledGrammar.deserialize_json(text, self._tokens)
            return XGrammarGrammar(compiled, self, tuple(json.loads(warnings)))
        except Exception as error:
            raise GrammarError(f"This is no compiled grammar for this vocabulary: {error}") from error

    def fill_native(self, matchers: list[tuple[Matcher, int]], masks: Tensor) -> None:
        """Fill the masks; a matcher that became too slow gets an empty mask."""
        pairs = [(cast(XGrammarMatcher, matcher), row) for matcher, row in matchers]
        states = [matcher.state for matcher, _ in pairs if not matcher.pace.is_slow]
        rows = [row for matcher, row in pairs if not matcher.pace.is_slow]
        if rows:
            self._batch.batch_fill_next_token_bitmask(states, masks, rows)
        for matcher, row in pairs:
            if matcher.pace.is_slow:
                masks[row] = 0


class XGrammarGrammar:
    """A compiled grammar and the warnings of xgrammar."""

    def __init__(self, compiled: Any, backend: XGrammarBackend, warnings: tuple[str, ...]) -> None:
        self.compiled, self.backend, self.warnings = compiled, backend, warnings

    def matcher(self) -> XGrammarMatcher:
        return XGrammarMatcher(self.backend.start(self.compiled), self.backend.vocabulary, SlowTokenGuard())


class XGrammarMatcher(Matcher):
    """A matcher of xgrammar."""

    def __init__(self, state: Any, vocabulary: GrammarVocabulary, pace: SlowTokenGuard) -> None:
        self.state, self._vocabulary, self.pace = state, vocabulary, pace

    def accept(self, token: int) -> bool:
        return self.accept_first((token,)) is not None

    def accept_first(self, tokens: Iterable[int]) -> int | None:
        """Advance by the first legal token. All tries are timed together, as timing each would cost more."""
        accept, is_text = self.state.accept_token, self._vocabulary.is_text
        return self.pace.step(
            lambda: next((token for token in tokens if is_text(token) and accept(token)), None)
        )

    def rollback(self, count: int) -> None:
        if count:
            self.state.rollback(count)
            self.pace.rollback(count)

    def is_complete(self) -> bool:
        return bool(self.state.is_completed())

    def is_over(self) -> bool:
        """Whether the output must end here, computed from the mask because xgrammar has no direct query."""
        if self.pace.is_slow or not self.is_complete():
            return self.is_complete()
        mask = torch.zeros(1, self._vocabulary.words, dtype=torch.int32)
        self.state.fill_next_token_bitmask(mask)
        return not (mask & self._vocabulary.text_mask).any()

    def forced(self) -> bytes:
        if self.pace.is_slow:
            return b""
        try:
            return cast(bytes, self.state.find_jump_forward_string().encode())
        except UnicodeDecodeError as error:  # the bytes begin or end inside a character
            return error.object

    def limit(self) -> str:
        return self.pace.limit and f"in xgrammar {self.pace.limit}"

    def fork(self) -> XGrammarMatcher:
        return XGrammarMatcher(self.state.fork(), self._vocabulary, self.pace.fork())
