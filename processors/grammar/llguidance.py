"""llguidance (https://github.com/guidance-ai/llguidance): JSON schemas, regular expressions and Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, cast

from torch import Tensor

from processors.base import Env
from processors.errors import GrammarError
from processors.grammar.compile_guards import SlowTokenGuard, caught_lines
from processors.grammar.grammar_backend import GrammarVocabulary, Matcher, NativeBackend
from processors.grammar.json_grammars import as_lark, json_options
from processors.request_values import Constraint

# Limits of work and memory of one grammar: the first two while it is compiled, the others while it is used.
LIMITS: dict[str, int] = {
    "max_grammar_size": 500_000,  # symbols
    "initial_lexer_fuel": 1_000_000,  # about 50,000 per millisecond
    "max_lexer_states": 250_000,  # 1 to 2 kB each
    "step_lexer_fuel": 1_000_000,  # about 14,000 per millisecond
    "step_max_items": 100_000,  # about 20,000 per millisecond
    "max_items_in_row": 5_000,
}


class LLGuidanceBackend(NativeBackend):
    """The vocabulary, limits and threads of llguidance."""

    name = "llguidance"
    version = version("llguidance")
    kinds = frozenset({"json_schema", "regex", "lark"})

    def __init__(self, env: Env) -> None:
        import llguidance

        self.vocabulary = GrammarVocabulary(env)
        wrapped = _Tokenizer(self.vocabulary, env)
        # llguidance needs an end-of-text id. Without one, a special id stands in; the masks never allow it.
        self._stand_in_end = None if env.eos_ids else wrapped.eos_token_id
        self._tokens = llguidance.LLTokenizer(
            cast(Any, wrapped), n_vocab=env.vocab_size, eos_token=list(env.eos_ids) or [wrapped.eos_token_id]
        )
        self._matcher = llguidance.LLMatcher
        self._limits = llguidance.LLParserLimits(**LIMITS, verbose_errors=False)  # type: ignore[arg-type]
        self._threads = llguidance.LLExecutor()

    def reason(self, error: Exception) -> str:
        return _shortened(str(error).strip() or type(error).__name__)

    def compile_native(self, constraint: Constraint) -> LLGuidanceGrammar:
        """Compile a constraint. The limits bound time and memory, but not recursion."""
        text, panicked = self._text(constraint), False
        with caught_lines(lambda line: panicked):
            try:
                is_error, warnings = self._matcher.validate_grammar_with_warnings(
                    text, self._tokens, limits=self._limits
                )
                start = self._matcher(self._tokens, text, log_level=0, limits=self._limits)
            except BaseException as error:
                if panicked := type(error).__name__ == "PanicException":  # a BaseException, but no Exception
                    raise GrammarError(f"it stopped with an internal error: {error}") from error
                raise
        if is_error or start.is_error():
            raise GrammarError(warnings[0] if is_error else start.get_error())
        first = start.deep_copy()
        first.compute_bitmask()
        # The stop reason is InternalError for all errors, so the message is compared. `compile` handles
        # NoExtension.
        if first.is_error() and _is_limit(first.get_error()):
            raise GrammarError(first.get_error().replace("<non-verbose/>", "").strip())
        return LLGuidanceGrammar(start, self.vocabulary, tuple(warnings))

    def _text(self, constraint: Constraint) -> str:
        """Return the grammar in llguidance's JSON, below a top grammar with `no_forcing`.

        With forcing, the mask would allow only one tokenization of forced text.
        """
        grammar: dict[str, Any]
        if constraint.kind == "json_schema":
            schema = json.loads(constraint.text)
            if (lark := as_lark(schema, constraint.whitespace)) is not None:
                grammar = {"lark_grammar": lark}
            else:
                text = "{}" if schema is True else constraint.text  # options need an object as the schema
                options = cast(Any, json_options(constraint.whitespace))
                written = self._matcher.grammar_from_json_schema(text, overrides=options)
                grammar = json.loads(written)["grammars"][0]
        elif constraint.kind == "regex":
            grammar = json.loads(self._matcher.grammar_from_regex(constraint.text))["grammars"][0]
        else:
            grammar = {"lark_grammar": constraint.text}
        top = {"lark_grammar": '%llguidance {"no_forcing": true}\nstart: @main'}
        return json.dumps({"grammars": [top, {**grammar, "name": "main"}]})

    def fill_native(self, matchers: list[tuple[Matcher, int]], masks: Tensor) -> None:
        """Fill the masks; a matcher that reached a limit gets an empty mask."""
        rows, words = masks.shape
        pairs = [(cast(LLGuidanceMatcher, matcher), row) for matcher, row in matchers]
        states = [(matcher.state, row) for matcher, row in pairs if not matcher.pace.is_slow]
        if states:
            size = words * masks.element_size()
            self._threads.unsafe_compute_mask_ptr(states, masks.data_ptr(), size, rows)
        for matcher, row in pairs:
            if matcher.pace.is_slow or matcher.mend():
                masks[row] = 0
            elif self._stand_in_end is not None:
                masks[row] &= self.vocabulary.text_mask


class LLGuidanceGrammar:
    """A compiled grammar: a matcher in the start state to be copied, and the warnings of llguidance."""

    def __init__(self, start: Any, vocabulary: GrammarVocabulary, warnings: tuple[str, ...]) -> None:
        self.start, self.vocabulary, self.warnings = start, vocabulary, warnings

    def matcher(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self, self.start.deep_copy(), SlowTokenGuard())


class LLGuidanceMatcher(Matcher):
    """A matcher of llguidance that leaves the library's error state immediately."""

    def __init__(
        self, grammar: LLGuidanceGrammar, state: Any, pace: SlowTokenGuard, tokens: Sequence[int] = ()
    ) -> None:
        self.state, self.pace = state, pace
        self._grammar, self._tokens = grammar, list(tokens)

    def accept(self, token: int) -> bool:
        if not self._grammar.vocabulary.is_text(token):
            return False
        if self.pace.step(lambda: token if self.state.try_consume_tokens([token]) == 1 else None) is None:
            self.mend()
            return False
        self._tokens.append(token)
        return True

    def rollback(self, count: int) -> None:
        if count:
            del self._tokens[-count:]
            self.state.rollback(count)
            self.pace.rollback(count)
            self.mend()

    def mend(self) -> bool:
        """Return whether llguidance is in its error state (limit or dead end); if so, rebuild the state."""
        if not self.state.is_error():
            return False
        self.state = self._grammar.start.deep_copy()
        self.state.try_consume_tokens(self._tokens)
        return True

    def is_complete(self) -> bool:
        return bool(self.state.is_accepting())

    def is_over(self) -> bool:
        return self.is_complete() and (self.pace.is_slow or bool(self.state.is_stopped()))

    def forced(self) -> bytes:
        return b"" if self.pace.is_slow else bytes(self.state.compute_ff_bytes())

    def limit(self) -> str:
        if self.pace.is_slow:
            return f"in llguidance {self.pace.limit}"
        state = self.state.deep_copy()
        state.compute_bitmask()
        reason = state.get_error().replace("<non-verbose/>", "").strip() if state.is_error() else ""
        return f"llguidance stopped here: {_shortened(reason)}" if _is_limit(reason) else ""

    def fork(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self._grammar, self.state.deep_copy(), self.pace.fork(), self._tokens)


class _Tokenizer:
    """The tokenizer interface that LLTokenizer expects. Special id 5 is named <|5|>; grammars write <[5]>."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary, env: Env) -> None:
        assert env.vocabulary is not None
        self._vocabulary = env.vocabulary
        data = vocabulary.token_bytes
        self.special_token_ids = [token for token, text in enumerate(data) if not text]
        if not self.special_token_ids:
            raise GrammarError("llguidance needs an id that is no text, to end texts with; there is none.")
        self.eos_token_id = self.special_token_ids[0]
        self.tokens = [text or b"<|%d|>" % token for token, text in enumerate(data)]

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.encode(text, special=False)


def _is_limit(reason: str) -> bool:
    """Whether a matcher stopped for a reason other than a grammar that allows no token."""
    return bool(reason) and not reason.startswith("NoExtension")


def _shortened(reason: str) -> str:
    """Return the reason shortened, with the name and number of the limit in LIMITS, if it is one."""
    limits = {
        "initial lexer configuration": "initial_lexer_fuel",
        "schema too large": "max_grammar_size",
        "Too many items": "step_max_items",
    }
    limit = next((name for words, name in limits.items() if words in reason), None)
    reason = re.sub(r"(.)\1{30,}", r"\1\1\1...", reason)  # long repetitions come from the faulty grammar
    short = reason if len(reason) <= 500 else f"{reason[:200]} ... {reason[-300:]}"
    return f"{short} (limit {limit}: {LIMITS[limit]:,})" if limit else short
