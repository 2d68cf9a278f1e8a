"""Replay of a chain on kept logits, without the model: its choices, and why it left out a named token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import torch
from torch import Tensor

from gencli.errors import GenerationError, UsageError
from gencli.explain.logits_file import read_kept
from gencli.explain.token_record import Record, token_record
from gencli.explain.trace_file import TracedText
from gencli.results.run_results import piece
from gencli.text.tokenizer import Tokenizer
from processors.base import Admission, Document, Env, Vocabulary
from processors.catalog import Draw
from processors.chain import Chain
from processors.explain_rows import KeptLogits
from processors.params import MOST
from processors.registry import Registry
from processors.row_view import RowView
from processors.standalone import ChainRun

_ENDED: tuple[Document, ...] = ("broken", "over")  # states of a document after which no token may follow
_MAX_STAGES = 256  # limit of stages in a trace's chain
_SAME = 1e-6  # difference of probabilities due to rounding


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A chain at one position of a text: its chosen token, and its processed logits [V] float32.

    `is_exact`: false if logits that were not kept could change either.
    """

    token: int
    logits: Tensor
    is_exact: bool


class Replay:
    """Runs one chain along a text: for each token `look`, optionally `explain`, then `commit`.

    The chain sees the text's tokens, whatever it would choose itself, and draws with the text's noise; the
    seed is that of `kept`, the logits at the first position. Raises ChainError, ParamError or UnknownStage.
    """

    def __init__(
        self,
        chain: Chain,
        env: Env,
        kept: KeptLogits,
        *,
        draw: Draw = "gumbel",
        request: Admission,
        registry: Registry | None = None,
    ) -> None:
        self._is_whole = len(kept.ids) == kept.vocab_size
        seeds = [kept.seed] * (1 if self._is_whole else 2)
        self.run = ChainRun(chain, env, seeds=seeds, draw=draw, request=request, registry=registry)

    def look(self, kept: KeptLogits) -> Look:
        """Return the chain's choice for the logits of the next position."""
        chosen = self.run.choose(self._rows(kept))
        token, logits = int(chosen.tokens[0]), chosen.logits[0]
        if self._is_whole:
            return Look(token, logits, True)
        # Both rows of KeptLogits.rows [2, V] have to give the same token and distribution, on kept ids only.
        others = chosen.logits.index_fill(1, kept.ids, -torch.inf)
        p = chosen.logits.double().softmax(-1)
        is_settled = not bool((others > -torch.inf).any()) and bool(chosen.tokens[0] == chosen.tokens[1])
        return Look(token, logits, is_settled and bool((p[0] - p[1]).abs().max() < _SAME))

    def explain(self, kept: KeptLogits, token: int, *, count: int = 5) -> RowView:
        """Return the explanation of a token, chosen or not, at the next position."""
        rows = self._rows(kept)
        return self.run.explain(rows, torch.full((len(rows),), token), count=count)[0]

    def follows(self, token: int) -> bool:
        """Whether the chain's grammar, if any, may continue after this token at the next position."""
        return all(status.document not in _ENDED for status in self.run.pipeline.preview(0, [token]))

    def commit(self, token: int) -> None:
        self.run.commit([token])

    def _rows(self, kept: KeptLogits) -> Tensor:
        return kept.rows()[:1] if self._is_whole else kept.rows()


def chain_of(head: Mapping[str, Any], registry: Registry | None = None) -> tuple[Chain, Draw]:
    """Return the chain and the draw of a traced text. Raises GenerationError if its head has none."""
    stages, draw = head.get("chain"), head.get("draw")
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise GenerationError("The trace does not say which chain its text has.")
    if (count := len(stages)) > _MAX_STAGES:
        raise GenerationError(f"The chain of the trace has {count} stages, at most {_MAX_STAGES} are read.")
    if draw not in (draws := get_args(Draw)):
        wrong = str(draw)[:40]
        raise GenerationError(f"The trace's draw is {wrong!r}, but has to be one of {', '.join(draws)}.")
    return Chain.from_list(stages, registry), cast(Draw, draw)


def kept_of(text: TracedText) -> Iterator[tuple[Record, KeptLogits]]:
    """Yield each record of a traced text with its kept logits. Raises GenerationError if they are missing."""
    for record in text.records:
        if "logits" not in record:
            raise GenerationError("The trace has no logits.", hint="Write it with `trace` and `keep_logits`.")
        try:
            yield record, read_kept(record["logits"])
        except (KeyError, TypeError, ValueError) as error:
            raise GenerationError(f"Token {record['pos']} has no logits that can be read: {error}.") from None


def replay_of(
    head: Mapping[str, Any],
    kept: KeptLogits,
    tokenizer: Vocabulary | None,
    chain: Chain,
    draw: Draw,
    registry: Registry | None = None,
) -> Replay:
    """Return the replay of a traced text, whose first logits are `kept`, with a chain and a draw."""
    lists = {key: head.get(key, []) for key in ("prompt_ids", "eos_ids", "stop_ids")}
    for key, ids in lists.items():
        is_list = isinstance(ids, list | tuple)
        if not is_list or not all(isinstance(i, int) and 0 <= i < kept.vocab_size for i in ids):
            raise GenerationError(f"{key} of the trace is no list of token ids below {kept.vocab_size}.")
    limit = head.get("max_tokens")
    max_tokens = limit if isinstance(limit, int) and 0 < limit <= MOST else None
    request = Admission(tuple(lists["prompt_ids"]), tuple(lists["stop_ids"]), max_tokens)
    env = Env(kept.vocab_size, tokenizer, tuple(lists["eos_ids"]))
    return Replay(chain, env, kept, draw=draw, request=request, registry=registry)


@dataclass(slots=True)
class Seeker:
    """Follows texts with a chain and a named token.

    `records`: by request and sample, the record of the named token at each position, with further fields.
    `chosen`: the text's token there, and `winner`: the token that the chain draws, equal for the text's own
    chain, both as [id, text]. `removed_by`: the stage that masked the named token, "" if none did.
    `wins_without`: stages without each of which the same draw gives the named token. `bound`: smallest kept
    logit, an upper bound of the named token's logit if that was not kept; its probability is then unknown.
    `kept`: number of kept logits.
    """

    named: int
    tokenizer: Tokenizer
    chain: Chain
    draw: Draw
    registry: Registry | None
    count: int  # of ids in the lists of a record
    records: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    _replays: dict[tuple[str, int], Replay] = field(default_factory=dict)

    def add(self, key: tuple[str, int], head: Mapping[str, Any], chosen: int, kept: KeptLogits) -> None:
        """Add the record of the next position of a text, whose token there is `chosen`."""
        tokenizer = self.tokenizer
        if key not in self._replays:
            parts = tokenizer, self.chain, self.draw, self.registry
            self._replays[key], self.records[key] = replay_of(head, kept, *parts), []
        if self.named >= kept.vocab_size:
            raise UsageError(f"Token id {self.named} is outside the model's vocabulary of {kept.vocab_size}.")
        replay, records = self._replays[key], self.records[key]
        look, view = replay.look(kept), replay.explain(kept, self.named, count=self.count)
        replay.commit(chosen)
        is_kept = bool((kept.ids == self.named).any())
        masks = (stage.name for stage in view.stages if stage.after.rank is None)
        is_all = is_kept or len(kept.ids) == kept.vocab_size
        record = {
            **token_record(view, tokenizer, run=key[0], sample=key[1], position=len(records)),
            "chosen": [chosen, piece(chosen, tokenizer)],
            "winner": [look.token, piece(look.token, tokenizer)],
            "removed_by": next(masks, "") if view.raw.rank is not None else "model",
            "wins_without": list(view.wins_without),
            "bound": None if is_all else float(kept.values.min()),
            "kept": len(kept.ids),
            "exact": look.is_exact,
        }
        records.append(record)


def find_token(text: str, tokenizer: Tokenizer) -> tuple[int, str]:
    """Return the id of the token for this text, and a notice if the token's text differs.

    "#12" means the token with id 12. Otherwise: the token with the same bytes, with a space before them, or
    the first token of the text. Raises UsageError if there is none.
    """
    tokens = tokenizer.token_bytes
    for wanted in (text, f" {text}") if text else ():
        data = wanted.encode()
        if (token := next((i for i, other in enumerate(tokens) if other == data), None)) is not None:
            return token, "" if wanted == text else f"No token is {text!r}; this is about {wanted!r}."
    number = text.removeprefix("#")
    if text.startswith("#") and number.isascii() and number.isdigit() and len(number) < 10:
        return int(number), ""
    if ids := tokenizer.encode(text, special=False) if text else []:
        first = tokens[ids[0]].decode("utf-8", "replace") if ids[0] < len(tokens) else f"#{ids[0]}"
        return ids[0], f"{text!r} has {len(ids)} tokens; this is about the first one, {first!r}."
    why = "there is no tokenizer that knows texts" if text else "it is empty"
    raise UsageError(f"No token has this text: {why}.", hint="Give the text of a token, or #ID.")
