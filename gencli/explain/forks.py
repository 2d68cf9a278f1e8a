"""Forks of texts: a cut in a text of a tree becomes requests, their results nodes; heads of traced texts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gencli.config.job import Job, make_request
from gencli.core.events import Finish
from gencli.core.request import Request
from gencli.errors import GenerationError, UsageError
from gencli.explain.text_sets import ROOT, Node, Tree
from gencli.explain.trace_file import TracedText
from gencli.results.run_record import RunInfo
from gencli.results.run_results import PromptRow, piece
from gencli.text.tokenizer import Tokenizer
from processors.rng import derive


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut after the first `at` tokens of a node's text; the next token is `token`, or drawn if None."""

    node: int
    at: int
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Forks:
    """The run of a tree: its job with compiled grammar, its prompt, and the tokenizer of its model."""

    job: Job
    prompt: tuple[int, ...]
    tokenizer: Tokenizer

    def root(self, text: TracedText) -> Node:
        """Return the root of a tree: the traced text. Raises GenerationError if another model wrote it."""
        ids = tuple(record["id"] for record in text.records)
        if not ids:
            raise GenerationError("The text has no tokens, so no other text can fork from it.")
        for record in text.records:
            self._check_id(record["id"])
            if record["text"] and piece(record["id"], self.tokenizer) != record["text"]:
                raise self._is_other(record["id"], record["text"])
        first = text.records[0]
        shown = "".join(pieces(self.prompt, ids, self.tokenizer))
        return Node(ROOT, None, 0, first["text"], shown, ids, 0, first["raw"]["p"], False, text.reason)

    def check(self, tree: Tree) -> None:
        """Raise GenerationError if a tree's texts do not match its tokens: another model wrote them."""
        for node in tree.nodes.values():
            for token in node.ids:
                self._check_id(token)
        root = tree.nodes[ROOT]
        if "".join(self.pieces(tree, ROOT)) != root.text:
            raise self._is_other(root.ids[0], root.token)

    def _check_id(self, token: int) -> None:
        if not 0 <= token < self.tokenizer.vocab_size:
            raise GenerationError(f"The model has no token {token}: another model wrote the text.")

    def _is_other(self, token: int, text: str) -> GenerationError:
        other = piece(token, self.tokenizer)
        return GenerationError(
            f"Token {token} is {text!r} in the file and {other!r} in the model: another model wrote the text."
        )

    def pieces(self, tree: Tree, node: int) -> list[str]:
        """Return the text that each token adds to a node's text."""
        return pieces(self.prompt, tree.ids(node), self.tokenizer)

    def requests(self, tree: Tree, cut: Cut, count: int, seed: int | None = None) -> list[Request]:
        """Return requests named 1, 2, ... for children at the cut, each with a seed of its own.

        `seed` replaces the run's. Raises UsageError for a cut after the end of the text.
        """
        ids, head = tree.ids(cut.node), tree.head
        if cut.at >= len(ids):
            raise UsageError(f"The text has no position {cut.at}; its last one is {len(ids) - 1}.")
        prefix = ids[: cut.at] + (() if cut.token is None else (cut.token,))
        base = derive(head["seed"] if seed is None else seed, f"fork {head['run']} {head['sample']}")
        requests = (self._request(str(n + 1), derive(base, tree.next_id + n)) for n in range(count))
        return [replace(request, prefix=prefix) for request in requests]

    def ranking(self, tree: Tree, cut: Cut, rank: int) -> Request:
        """Return a request whose last token, at the cut, has the `rank` most likely ids as alternatives.

        It has no limit of time: that is for the children.
        """
        ids, request = tree.ids(cut.node)[: cut.at + 1], self._request("rank", 0)
        return replace(request, given=ids, logprobs=rank, limits=replace(request.limits, max_time=None))

    def node(self, tree: Tree, cut: Cut, request: Request, row: PromptRow) -> Node | None:
        """Return the node of a request's result; None if it failed or has no new token."""
        end, entries = row.outcomes[0], row.scores.of(0)
        if not isinstance(end, Finish) or len(entries) <= cut.at:
            return None
        ids = tuple(entry.chosen.id for entry in entries)
        before = "".join(pieces(request.prompt_ids, ids[: cut.at], self.tokenizer, is_whole=False))
        # A stop string that began before the cut belongs to neither text.
        kept = min(len(before), len(end.text), len(tree.text(cut.node)))
        return Node(
            id=tree.next_id + int(request.id) - 1,
            parent=cut.node,
            at=cut.at,
            token=piece(ids[cut.at], self.tokenizer),
            text=end.text[kept:],
            ids=ids[cut.at :],
            kept=kept,
            p=float(f"{math.exp(entries[cut.at].chosen.logprob):.6g}"),
            given=cut.token is not None,
            reason=end.reason,
            seed=request.seed,
        )

    def _request(self, name: str, seed: int) -> Request:
        request = make_request(self.job, name, self.prompt, seed, self.tokenizer)
        return replace(request, n=1, best_of=None, logprobs=0, prompt_logprobs=None, trace=None)


def pieces(
    prompt: tuple[int, ...], ids: tuple[int, ...], tokenizer: Tokenizer, *, is_whole: bool = True
) -> list[str]:
    """Return each token's text, a character at its last token; with `is_whole` the last has the held rest."""
    stream = tokenizer.stream(prompt)
    texts = [stream.push(token) for token in ids]
    if texts and is_whole:
        texts[-1] += stream.flush()
    return texts


def token_of(text: str, tokenizer: Tokenizer) -> int:
    """Return the id of the token with exactly this text. Raises UsageError with the nearest tokens."""
    data = text.encode()
    ids = [token for token, spelling in enumerate(tokenizer.token_bytes) if spelling == data]
    ids = ids or [token for token in sorted(tokenizer.special_ids) if piece(token, tokenizer) == text]
    if ids and text:
        return ids[0]
    tokens, bare = set(tokenizer.token_bytes) - {b"", data}, data.strip()
    # The most similar first: other spaces or case, then the prefixes of the text.
    similar = (b" " + bare, bare, b" " + bare.lower(), bare.lower(), b" " + bare.capitalize())
    prefixes = (data[:size] for size in range(len(data) - 1, 0, -1))
    near = [spelling for spelling in dict.fromkeys((*similar, *prefixes)) if spelling in tokens][:4]
    shown = ", ".join(repr(spelling.decode(errors="replace")) for spelling in near)
    parts = " ".join(repr(piece(token, tokenizer)) for token in tokenizer.encode(text, special=False)[:8])
    raise UsageError(
        f"{text!r} is no single token of the model; it is made of {parts or 'nothing'}.",
        hint=f"Nearest tokens: {shown}." if shown else "gencli tokenize shows the tokens of a text.",
    )


def text_head(info: RunInfo, prompt: str, prompt_ids: tuple[int, ...]) -> dict[str, Any]:
    """Return model, prompt, chain, draw and seed, and other data that a chain needs to run on kept logits."""
    return {
        "model": info.model,
        "prompt": prompt,
        "chain": info.chain.to_list(),
        "draw": info.job.method,
        "seed": info.job.seed,
        "prompt_ids": prompt_ids,
        "eos_ids": info.eos_ids,
        "stop_ids": info.job.stops.ids,
        "max_tokens": info.job.limits.max_tokens,
    }
