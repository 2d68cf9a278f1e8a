"""The stage `grammar`: mask the tokens that a grammar forbids, by bit masks of a back end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from processors.base import Admission, Env, GrammarStatus, Noise, Processor
from processors.errors import GrammarError
from processors.later import (
    closing,
    forced_tokens,
    grammar_backend,
    grammar_state,
    graphs,
    narrowing,
    operations,
    short_texts,
    torch,
)
from processors.params import Note, Params, Phase, param, parameters
from processors.request_values import WHITESPACE, Constraint, GrammarKind, Marker

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows

_MAX_COMPLETION = 4096  # maximum number of tokens of a completion
_MAX_DOCUMENT = 1 << 16  # the same of a whole document that is searched to know its length
_GAVE_UP = (
    "Near the limit of tokens no end of a document was found within the work that is allowed for one step, "
    "so the limit may cut it."
)
_NO_ROOM = (
    "The shortest output that was found has {} tokens, but there is room for {}, so the limit may cut it."
)


@dataclass(frozen=True, slots=True, eq=False)
class _SlotMasks:
    """Masks [n, W] of a slot, mask i after the first i of `drafts`; rows with more drafts are not masked."""

    drafts: tuple[int, ...]
    masks: Tensor
    forced: tuple[bool, ...]


WHITESPACE_LIMIT = 1024


@parameters
class GrammarParams(Params):
    """Allow only tokens that keep the output inside a grammar."""

    text: str = param("", "The grammar, written as `kind` says.")
    kind: GrammarKind = param("json_schema", "What the grammar is written in.")
    backend: Literal["trie", "xgrammar", "llguidance"] = param(
        "xgrammar", "What compiles it; trie is for choices."
    )
    whitespace: int = param(
        WHITESPACE,
        "At most this much white space in one place of a JSON document.",
        ge=0,
        le=WHITESPACE_LIMIT,
    )
    canonical: bool = param(
        True, "Text that the grammar forces is cut into tokens as the tokenizer would, without a choice."
    )
    in_budget: bool = param(True, "Near the limit of tokens, allow only what can still be completed.")
    after: str = param("", "The output is free up to the end of this text; then the grammar begins.")


def _choice(*texts: str, **options: Any) -> dict[str, Any]:
    return {"text": json.dumps(texts), "kind": "choice", "backend": "trie", **options}


class GrammarStage(Processor[GrammarParams]):
    """Mask every token that the grammar forbids; end-of-text ids are allowed where the document is complete.

    Drafts are accepted and rolled back within one call. A row after an illegal draft is not masked, as its
    token is never used. GrammarError at admission: the grammar cannot be compiled, or there is no tokenizer.
    """

    name = "grammar"
    phase = Phase.CONSTRAIN
    Params = GrammarParams
    about = Note(
        "x[i] = -inf where output + token i begins no text of the grammar; ends of text where it is complete",
        "Willard and Louf 2023; the masks are xgrammar's and llguidance's.",
        'grammar:kind=regex,text="[0-9]+"',
        "vLLM, SGLang, llama.cpp, transformers (by plug-ins); most check or refuse drafts otherwise",
    )

    example_values = (
        _choice(" sat. the cat the ca", " sat. the cat the ca😀", " sat. the cat"),
        _choice("a", "ab", "abab", "ababab", "the end"),
        _choice("\n", "\n\n", "\n\né", "é"),
        _choice("the cat", "the cat sat", "the", after=" the"),
        _choice("ab", after="a"),
        _choice("b", "ba", after="</"),
        _choice("the cat sat. the cat", "the cat sat on", canonical=False),
    )

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._states: dict[int, grammar_state.GrammarState] = self.by_slot(lambda state: state.fork())
        self._backend_of: dict[int, grammar_backend.Backend] = self.by_slot()
        self._backends: dict[str, grammar_backend.Backend] = {}
        self._masks: dict[int, _SlotMasks] = self.by_slot()
        self._narrowers: dict[str, narrowing.Narrower] = {}
        words, size, separators = env.vocabulary, env.vocab_size, forced_tokens.SeparatorModel
        self._canonical = forced_tokens.CanonicalTokenizer(words) if words else None
        self._kinds = closing.TokenKinds(words.token_bytes, size) if words else None
        self._readable = grammar_state.Readable(words.token_bytes, size) if words else None
        self._default_separators = separators.usual(words) if words else separators()
        self._shortest = lru_cache(maxsize=64)(self._shortest_of)
        self._guide = lru_cache(maxsize=64)(short_texts.guide_of)
        self._triggers = lru_cache(maxsize=64)(self._triggers_of)

    def admit(self, slot: int, params: GrammarParams, request: Admission) -> None:
        """Compile the grammar, or reuse that of an earlier request, and set the state of the slot."""
        if self.env.vocabulary is None or self._canonical is None:
            raise GrammarError("A grammar works on texts, but there is no tokenizer.")
        super().admit(slot, params, request)
        backend = self._backend(params.backend)
        if params.kind not in backend.kinds:
            raise GrammarError(f"The back end {backend.name} does not take a grammar of kind {params.kind}.")
        constraint = Constraint(params.kind, params.text, params.backend, params.whitespace)
        grammar = (self.env.grammars or backend).compile(constraint)
        budget = request.max_tokens if params.in_budget else None
        is_json = params.kind == "json_schema"
        document = _document(params)
        guide = short_texts.Guide() if budget is None else self._guide(constraint)
        shortest = None if budget is None else self._shortest(grammar, backend.name, guide, is_json)
        if shortest is not None and budget is not None and len(shortest) > budget:
            self.add_notice(_NO_ROOM.format(len(shortest), budget))
            budget = None
        rules = grammar_state.GrammarRules(
            canonical=self._canonical,
            narrower=self._narrower(backend.name),
            ends=frozenset((*self.env.eos_ids, *request.stop_ids)),
            marker=self._awaited(params.after, request.prompt),
            is_json=is_json,
            is_canonical=params.canonical,
            budget=budget,
            shortest=shortest,
            guide=guide,
            triggers=() if budget is None or is_json else self._triggers(grammar, params.text),
            usual=self._default_separators,
            document=document,
            readable=self._readable if document else None,
        )
        self._states[slot] = grammar_state.GrammarState.start(grammar.matcher(), rules)
        self._backend_of[slot] = backend
        self._masks.pop(slot, None)

    def _shortest_of(
        self,
        grammar: grammar_backend.CompiledGrammar,
        backend: str,
        guide: short_texts.Guide,
        is_json: bool,
    ) -> tuple[int, ...] | None:
        assert self._canonical is not None
        context = forced_tokens.JsonContext() if is_json else None
        position = closing.Position(grammar.matcher(), b"", context, self._canonical, guide)
        return self._narrower(backend).shortest(position, _MAX_DOCUMENT, narrowing.START_CALLS)

    def _awaited(self, after: str, prompt: Sequence[int]) -> Marker | None:
        """Return the marker after which the document begins; None if it begins with the output.

        It does so after a prompt that ends with the marker, as a chat template writes it without thinking.
        """
        if not after or self.env.vocabulary is None:
            return None
        marker = Marker.of(after, self.env.vocabulary)
        return None if marker.ends(prompt) else marker

    def _triggers_of(self, grammar: grammar_backend.CompiledGrammar, text: str) -> tuple[bytes, ...]:
        assert self._canonical is not None
        return narrowing.find_triggers(text, grammar.matcher(), self._canonical.byte_ids)

    def _narrower(self, name: str) -> narrowing.Narrower:
        if name not in self._narrowers:
            assert self._canonical is not None
            assert self._kinds is not None
            backend, size = self._backend(name), grammar_backend.words(self.env.vocab_size)
            closer = closing.Closer(
                self._canonical, lambda matcher: grammar_backend.mask_of(backend, matcher, size)[0]
            )
            self._narrowers[name] = narrowing.Narrower(closer, self._kinds, self.env.vocab_size)
        return self._narrowers[name]

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._masks.pop(slot, None)
        self._states[slot].commit(tuple(tokens))

    def fork(self, source: int, target: int) -> None:
        """Copy the state; the grammar is shared."""
        super().fork(source, target)
        self._masks.pop(target, None)

    def prepare(self, rows: Rows) -> Tensor | None:
        """Fill all masks of the step. Return which drafts are forced [R, K] bool; None without drafts."""
        self._fill_masks(_longest(rows))
        width = rows.drafts.shape[1]
        if not width:
            return None
        flags = [self._forced(slot, width) for slot in rows.host_slots]
        return graphs.upload(flags, rows.drafts.device)

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Return the grammar status after each of the tokens."""
        tokens = tuple(tokens)
        cached = self._masks.get(slot)
        if cached is None or cached.drafts[: len(tokens) - 1] != tokens[:-1]:
            self._fill_masks({slot: tokens[:-1]})
        flags = self._forced(slot, len(tokens))
        statuses = self._states[slot].preview(tokens)
        pairs = zip(statuses, flags, strict=False)
        return tuple(GrammarStatus(status.document, flag) for status, flag in pairs)

    def predicted(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Return forced tokens and, in JSON, probable separators."""
        return self._states[slot].predicted(noise)

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return a short completion of the document after these tokens; () if it is not open."""
        return self._states[slot].completion(tuple(tokens), _MAX_COMPLETION)

    def failure_reason(self, slot: int, drafts: Sequence[int]) -> str:
        """Return the back end's limit that leaves no token after these drafts; "" if there is none."""
        return self._states[slot].limit(tuple(drafts))

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]; rows without a mask are unchanged."""
        decided, masks = self._decided(rows)
        if not decided:
            return logits
        masks = graphs.copy_to(logits.device, masks)
        if len(decided) == len(rows):
            return operations.apply_bitmask(logits, masks)
        at = graphs.upload(decided, logits.device)
        return logits.index_copy_(0, at, operations.apply_bitmask(logits.index_select(0, at), masks))

    def host_masks(self, rows: Rows) -> Tensor | None:
        """Return the bit masks of the rows [A, W] int32 on the host; None if no row has one."""
        decided, masks = self._decided(rows)
        if len(decided) == len(rows):
            return masks
        every = torch.full((len(rows), grammar_backend.words(self.env.vocab_size)), -1, dtype=torch.int32)
        if decided:
            every[decided] = masks
        return every if decided else None

    def _decided(self, rows: Rows) -> tuple[list[int], Tensor]:
        """Return the indices of the rows with a mask, and their masks [N, W] int32 on the host."""
        self._fill_masks(_longest(rows))
        steps = [len(drafts) for drafts in rows.host_drafts]
        slot_masks = [self._masks[slot].masks for slot in rows.host_slots]
        decided = [
            row for row, (masks, step) in enumerate(zip(slot_masks, steps, strict=True)) if step < len(masks)
        ]
        if not decided:
            return decided, torch.empty(0, dtype=torch.int32)
        return decided, torch.stack([slot_masks[row][steps[row]] for row in decided])

    def idle(self, rows: Rows) -> list[str]:
        self._fill_masks(_longest(rows))
        sizes = [len(self._masks[slot].masks) for slot in rows.host_slots]
        steps = (len(drafts) for drafts in rows.host_drafts)
        return [
            "the grammar allows every token" if step < size else "no document here"
            for step, size in zip(steps, sizes, strict=True)
        ]

    def _backend(self, name: str) -> grammar_backend.Backend:
        if name not in self._backends:
            grammars = self.env.grammars
            backend = grammars.backend(name) if grammars else grammar_backend.load_backend(name, self.env)
            self._backends[name] = backend
        return self._backends[name]

    def _forced(self, slot: int, width: int) -> list[bool]:
        forced = self._masks[slot].forced[:width]
        return [*forced, *[False] * (width - len(forced))]

    def _fill_masks(self, longest: dict[int, tuple[int, ...]]) -> None:
        """Fill the masks of these slots and drafts that are not cached, one call for each back end."""
        missing = {
            slot: drafts
            for slot, drafts in longest.items()
            if slot not in self._masks or self._masks[slot].drafts[: len(drafts)] != drafts
        }
        if not missing:
            return
        masks = torch.full(
            (sum(len(run) + 1 for run in missing.values()), grammar_backend.words(self.env.vocab_size)),
            -1,
            dtype=torch.int32,
        )
        asks, row = list[tuple[int, grammar_backend.Ask]](), 0
        for slot, drafts in missing.items():
            state = self._states[slot]
            free = state.free(drafts)
            if free <= len(drafts) and (ask := state.ask(drafts[free:], row + free)) is not None:
                asks.append((slot, ask))
            row += len(drafts) + 1
        complete: dict[int, tuple[bool, ...]] = dict.fromkeys(missing, ())
        for backend in {self._backend_of[slot].name: self._backend_of[slot] for slot in missing}.values():
            of_backend = [(slot, ask) for slot, ask in asks if self._backend_of[slot] is backend]
            ends = backend.fill([ask for _, ask in of_backend], masks)
            complete |= {slot: tuple(flags) for (slot, _), flags in zip(of_backend, ends, strict=True)}
        self._keep(missing, masks, complete)
        if any(narrower.has_given_up for narrower in self._narrowers.values()):
            self.add_notice(_GAVE_UP)

    def _keep(
        self, longest: dict[int, tuple[int, ...]], masks: Tensor, complete: dict[int, tuple[bool, ...]]
    ) -> None:
        """Allow end-of-text ids where complete, narrow the masks near the token limit, cache them by slot."""
        row = 0
        for slot, drafts in longest.items():
            state = self._states[slot]
            free = 0 if state.is_done else min(state.free(drafts), len(drafts) + 1)
            may_end = [False] * free + list(complete[slot])
            slot_masks = masks[row : row + len(may_end)]
            grammar_backend.set_ids(
                slot_masks, sorted(state.rules.ends), torch.tensor(may_end, dtype=torch.bool)
            )
            if complete[slot]:
                state.refine(slot_masks[free:], drafts[free:], free)
            forced = (grammar_backend.count_allowed(slot_masks) == 1).tolist()
            self._masks[slot] = _SlotMasks(drafts, slot_masks, tuple(forced))
            row += len(drafts) + 1


def _document(params: GrammarParams) -> grammar_state.Document:
    """Return where the text is JSON: llguidance's Lark of tools has schemas as %json."""
    if params.kind == "json_schema":
        return "json"
    return "parts" if params.kind == "structural_tag" or "%json" in params.text else ""


def _longest(rows: Rows) -> dict[int, tuple[int, ...]]:
    """Return for each slot the drafts of its row with the most drafts."""
    longest: dict[int, tuple[int, ...]] = {}
    for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True):
        if len(drafts) >= len(longest.get(slot, ())):
            longest[slot] = drafts
    return longest
