"""Keep the output inside a grammar: masks from a back end, one bit a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from processors.base import Admission, Env, GrammarStatus, Noise, Processor
from processors.catalog import GrammarParams, Phase
from processors.constraint import Constraint
from processors.errors import GrammarError
from processors.grammar.backends.base import Ask, Backend, Grammar, load_backend
from processors.grammar.backends.bits import count_allowed, set_ids, words
from processors.grammar.backends.fill import mask_of
from processors.grammar.state.closing import Closer
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.grammar_state import GrammarState, Marker, Rules
from processors.grammar.state.json_statistics import JsonContext, SeparatorModel
from processors.grammar.state.narrowing import Narrower
from processors.grammar.state.pattern_samples import samples_of
from processors.grammar.state.token_kinds import TokenKinds
from processors.kernels.bitmask import apply_bitmask
from processors.rows import Rows
from processors.upload import upload

__all__ = ["GrammarStage"]

_CLOSING = 4096  # tokens that an open document may be completed with
_GAVE_UP = (
    "Near the limit of tokens no end of a document was found within the work that is allowed for one step, "
    "so the limit may cut it."
)


@dataclass(frozen=True, slots=True, eq=False)
class _Ahead:
    """The masks [n, W] of a slot for its first n prefixes of `drafts`; rows beyond them are free."""

    drafts: tuple[int, ...]
    masks: Tensor
    forced: tuple[bool, ...]


class GrammarStage(Processor[GrammarParams]):
    """Mask every token that the grammar does not allow; ends of text are allowed where it is complete.

    Drafts are walked through and taken back within one call. A row behind a draft that the grammar does not
    allow is left as it is, as nothing that it chooses is ever used. GrammarError at admission: the grammar
    cannot be compiled, or there is no tokenizer.
    """

    name = "grammar"
    phase = Phase.CONSTRAIN
    Params = GrammarParams

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._places: dict[int, GrammarState] = {}
        self._backend_of: dict[int, Backend] = {}
        self._backends: dict[str, Backend] = {}
        self._ahead: dict[int, _Ahead] = {}
        self._narrowers: dict[str, Narrower] = {}
        self._speller = CanonicalTokenizer(env.vocabulary) if env.vocabulary else None
        self._kinds = TokenKinds(env.vocabulary.token_bytes, env.width) if env.vocabulary else None
        self._usual = SeparatorModel.usual(env.vocabulary) if env.vocabulary else SeparatorModel()
        self._shortest = lru_cache(maxsize=64)(self._shortest_of)
        self._samples = lru_cache(maxsize=64)(samples_of)

    def admit(self, slot: int, params: GrammarParams, request: Admission) -> None:
        """Compile the grammar, unless another request had it before."""
        if self.env.vocabulary is None or self._speller is None:
            raise GrammarError("A grammar works on texts, but there is no tokenizer.")
        super().admit(slot, params, request)
        backend = self._backend(params.backend)
        if params.kind not in backend.kinds:
            raise GrammarError(f"The back end {backend.name} does not take a grammar of kind {params.kind}.")
        constraint = Constraint(params.kind, params.text, params.backend, params.whitespace)
        grammar = (self.env.grammars or backend).compile(constraint)
        budget = request.max_tokens if params.in_budget else None
        is_json = params.kind == "json_schema"
        samples = self._samples(constraint)
        shortest = None if budget is None else self._shortest(grammar, backend.name, budget, samples, is_json)
        rules = Rules(
            speller=self._speller,
            narrower=self._narrower(backend.name),
            ends=frozenset((*self.env.eos_ids, *request.stop_ids)),
            marker=Marker.of(params.after, self.env.vocabulary) if params.after else None,
            is_json=is_json,
            is_canonical=params.canonical,
            budget=None if shortest is None else budget,
            shortest=shortest or (),
            samples=samples,
            usual=self._usual,
        )
        self._places[slot] = GrammarState.start(grammar.matcher(), rules)
        self._backend_of[slot] = backend
        self._ahead.pop(slot, None)

    def _shortest_of(
        self, grammar: Grammar, backend: str, budget: int, samples: tuple[str, ...], is_json: bool
    ) -> tuple[int, ...] | None:
        """The tokens of a short document; None if none within the budget is found."""
        narrower = self._narrower(backend)
        spot = narrower.closer.spot(grammar.matcher(), b"", JsonContext() if is_json else None, samples)
        return narrower.shortest(spot, budget)

    def _narrower(self, name: str) -> Narrower:
        if name not in self._narrowers:
            assert self._speller is not None
            assert self._kinds is not None
            backend, size = self._backend(name), words(self.env.width)
            closer = Closer(self._speller, lambda matcher: mask_of(backend, matcher, size)[0])
            self._narrowers[name] = Narrower(closer, self._kinds, self.env.width)
        return self._narrowers[name]

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Go on in the grammar."""
        self._ahead.pop(slot, None)
        self._places[slot].commit(tuple(tokens))

    def release(self, slot: int) -> None:
        """Let go of the matcher."""
        for kept in (self._places, self._backend_of, self._ahead):
            kept.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy the matcher; the grammar is shared."""
        super().fork(source, target)
        self._places[target] = self._places[source].fork()
        self._backend_of[target] = self._backend_of[source]
        self._ahead.pop(target, None)

    def prepare(self, rows: Rows) -> Tensor | None:
        """Fill all masks of the step; returns which drafts were the only choice [R, K] bool."""
        self._look_ahead(_longest(rows))
        width = rows.drafts.shape[1]
        if not width:
            return None
        flags = [self._flags(slot, width) for slot in rows.host_slots]
        return upload(flags, rows.drafts.device)

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Where the output would stand after each of the tokens, and whether each was the only choice."""
        tokens = tuple(tokens)
        ahead = self._ahead.get(slot)
        if ahead is None or ahead.drafts[: len(tokens) - 1] != tokens[:-1]:
            self._look_ahead({slot: tokens[:-1]})
        flags = self._flags(slot, len(tokens))
        stands = self._places[slot].preview(tokens)
        return tuple(GrammarStatus(stand.document, flag) for stand, flag in zip(stands, flags, strict=False))

    def likely(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """What the grammar has come next, and between parts of JSON what has stood there before."""
        return self._places[slot].ahead(noise)

    def closing(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """What completes the document behind these tokens, with little more; () if it is not open."""
        return self._places[slot].closing(tuple(tokens), _CLOSING)

    def failure_reason(self, slot: int, drafts: Sequence[int]) -> str:
        """The limit of the back end that was reached, if that is why no token is left."""
        return self._places[slot].limit(tuple(drafts))

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]: what no back end row speaks of stays as it is."""
        self._look_ahead(_longest(rows))
        ahead = [self._ahead[slot] for slot in rows.host_slots]
        steps = [len(drafts) for drafts in rows.host_drafts]
        decided = [
            i for i, (look, step) in enumerate(zip(ahead, steps, strict=True)) if step < len(look.masks)
        ]
        if not decided:
            return logits
        masks = torch.stack([ahead[i].masks[steps[i]] for i in decided])
        masks = masks.to(logits.device, non_blocking=True)
        if len(decided) == len(rows):
            return apply_bitmask(logits, masks)
        at = upload(decided, logits.device)
        return logits.index_copy_(0, at, apply_bitmask(logits.index_select(0, at), masks))

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            make = self.env.grammars.backend if self.env.grammars else partial(load_backend, env=self.env)
            self._backends[name] = make(name)
        return self._backends[name]

    def _flags(self, slot: int, width: int) -> list[bool]:
        """Which of the first tokens are the only choice, padded to `width`."""
        known = self._ahead[slot].forced[:width]
        return [*known, *[False] * (width - len(known))]

    def _look_ahead(self, longest: dict[int, tuple[int, ...]]) -> None:
        """Fill the masks of these slots and drafts that are not there yet, one call for each back end."""
        missing = {
            slot: drafts
            for slot, drafts in longest.items()
            if slot not in self._ahead or self._ahead[slot].drafts[: len(drafts)] != drafts
        }
        if not missing:
            return
        masks = torch.full(
            (sum(len(run) + 1 for run in missing.values()), words(self.env.width)), -1, dtype=torch.int32
        )
        asks = list(self._asks(missing))
        complete: dict[int, tuple[bool, ...]] = dict.fromkeys(missing, ())
        for backend in {self._backend_of[slot].name: self._backend_of[slot] for slot in missing}.values():
            mine = [(slot, ask) for slot, ask in asks if self._backend_of[slot] is backend]
            ends = backend.fill([ask for _, ask in mine], masks)
            complete |= {slot: tuple(flags) for (slot, _), flags in zip(mine, ends, strict=True)}
        self._keep(missing, masks, complete)
        if _GAVE_UP not in self.notices and any(one.has_given_up for one in self._narrowers.values()):
            self.notices.append(_GAVE_UP)

    def _asks(self, longest: dict[int, tuple[int, ...]]) -> Iterator[tuple[int, Ask]]:
        row = 0
        for slot, drafts in longest.items():
            place = self._places[slot]
            free = place.free(drafts)
            ask = place.ask(drafts[free:], row + free) if free <= len(drafts) else None
            if ask is not None:
                yield slot, ask
            row += len(drafts) + 1

    def _keep(
        self, longest: dict[int, tuple[int, ...]], masks: Tensor, complete: dict[int, tuple[bool, ...]]
    ) -> None:
        """Set the bits of the ends, and keep each slot's rows, down to the last that is decided."""
        row = 0
        for slot, drafts in longest.items():
            place = self._places[slot]
            free = 0 if place.is_done else min(place.free(drafts), len(drafts) + 1)
            may_end = [False] * free + list(complete[slot])
            mine = masks[row : row + len(may_end)]
            set_ids(mine, sorted(place.rules.ends), torch.tensor(may_end, dtype=torch.bool))
            if complete[slot]:
                place.refine(mine[free:], drafts[free:], free)
            forced = (count_allowed(mine) == 1).tolist()
            self._ahead[slot] = _Ahead(drafts, mine, tuple(forced))
            row += len(drafts) + 1


def _longest(rows: Rows) -> dict[int, tuple[int, ...]]:
    """The most drafts that any row of a slot sees, by slot."""
    found: dict[int, tuple[int, ...]] = {}
    for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True):
        if len(drafts) >= len(found.get(slot, ())):
            found[slot] = drafts
    return found
