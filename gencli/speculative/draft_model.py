"""Draft tokens from a smaller model, of the same vocabulary or translated through text: its KV lanes, and
sampling from its logits as the request samples, with its stages, its draw and its noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Literal, Protocol

import torch
from torch import Tensor

from gencli.core.request import Feed, Request, StepPlan, shared_length
from gencli.core.tree_shapes import num_straight
from gencli.models.model_runner import ModelRunner, PrefixLane, PrefixLanes, as_wide
from gencli.speculative.draft_trees import GrowingTree, Ranking, TreeLevel, growing_tree
from gencli.speculative.drafter import DraftAsk, Drafter, Drawn
from gencli.speculative.translation import Transcript, Translation
from processors.base import Noise
from processors.catalog import Phase
from processors.chooser import Chooser, sampled
from processors.graphs import upload, upload_ints
from processors.history import History
from processors.kernels.operations import token_probability
from processors.pipeline import Pipeline
from processors.rng import Stream, gumbel, row_key, row_keys, signed
from processors.rows import Rows
from processors.sampler import PLAIN_LIMIT, Sampler

# none: drafts are chains. nodes: there are logits behind each node, which is fed for them. block: so too, but
# none is fed. depth: the logits of a depth are the same for all nodes.
Branching = Literal["none", "nodes", "block", "depth"]


class DraftSource(Protocol):
    """State by slot from which logits of draft tokens come: lanes of a draft model, or of a draft head.

    `vocab_size` is the number of token ids that can be fed.
    """

    @property
    def vocab_size(self) -> int: ...

    def request(self, slot: int) -> Request:
        """Return the request of the slot's sample."""

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample."""

    def release(self, slot: int) -> None:
        """End the slot's sample."""

    def trim(self) -> None:
        """Free memory. No slot is in use."""

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft now."""

    def room(self, ask: DraftAsk) -> int:
        """Return the maximum number of drafts for an ask, at least 1."""

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Return the tokens at the end of the text that have to be fed before the first draft."""

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> Tensor:
        """Feed tokens by slot. Return the logits [len(parts), V] after the last token of each."""

    @property
    def branching(self) -> Branching:
        """How drafts may branch."""

    def branch(self, levels: Mapping[int, TreeLevel]) -> Tensor:
        """Feed the new nodes of trees by slot, after `extend` and earlier levels.

        Return the logits [N, V] after each of them; [len(levels), V] if the drafts branch by depth.
        """


class AutoregressiveDrafter(Drafter):
    """Drafts token by token: one forward pass per position, for all slots together.

    Tokens are sampled as in the target: with the request's stages, draw and noise (see DraftSampler). Where
    an ask allows a tree, all positions of a depth are added in one pass.
    """

    is_autoregressive = True

    def __init__(self, lanes: DraftSource) -> None:
        self._lanes, self.has_trees = lanes, lanes.branching != "none"

    def bind(self, chooser: DraftSampler) -> None:
        self._choose = chooser

    def admit(self, slot: int, request: Request) -> None:
        self._lanes.admit(slot, request)

    def release(self, slot: int) -> None:
        self._lanes.release(slot)

    def trim(self) -> None:
        self._lanes.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        able = self._lanes.catch_up(asks)
        runs = self._grow(able) if self._may_branch(able) else self._draft(able)
        return [runs.get(ask.slot, ()) for ask in asks]

    def _may_branch(self, asks: Sequence[DraftAsk]) -> bool:
        """Whether to draft trees; no, beside a request that needs its drafts one by one."""
        if not self.has_trees or not any(ask.nodes for ask in asks):
            return False
        return not any(self._lanes.request(ask.slot).drafts_decide for ask in asks)

    def _grow(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Trees by slot, and chains for asks without. Each forward pass adds one level to all that grow."""
        source, trees = self._lanes, dict[int, GrowingTree]()
        is_by_depth = source.branching == "depth"
        for ask in asks:
            shape, most = source.request(ask.slot).drafting.tree, source.room(ask)
            tree = growing_tree(shape, ask, most)
            if source.branching == "nodes" and source.room(replace(ask, most=tree.most_fed)) < tree.most_fed:
                tree = growing_tree(None, ask, most)
            trees[ask.slot] = tree
        growing, is_shared = trees, is_by_depth and not self._choose.has_grammar([*trees])
        logits = source.extend({ask.slot: source.missing(ask) for ask in asks}) if asks else None
        while growing:
            assert logits is not None
            ranked = {slot: tree.frontier[: 1 if is_shared else None] for slot, tree in growing.items()}
            nodes = [(slot, node) for slot, frontier in ranked.items() for node in frontier]
            if is_by_depth and not is_shared:
                rows = [row for row, frontier in enumerate(ranked.values()) for _ in frontier]
                logits = logits[upload_ints(rows, logits.device)]
            slots, paths = [slot for slot, _ in nodes], [trees[slot].path(node) for slot, node in nodes]
            min_p = [source.request(slot).drafting.min_p for slot in slots]
            count = max(tree.width for tree in growing.values())
            rankings = iter(self._choose.rank(logits, slots, paths, count=count, least=min_p))
            for slot, tree in growing.items():
                own = [next(rankings) for _ in ranked[slot]]
                tree.grow(own * len(tree.frontier) if is_shared else own, self._goes_on)
            growing = {slot: tree for slot, tree in growing.items() if tree.frontier}
            if growing:
                logits = source.branch({slot: tree.level() for slot, tree in growing.items()})
        return {slot: tree.drafts() for slot, tree in trees.items()}

    def _goes_on(self, token: int) -> bool:
        """Whether drafts may follow a token."""
        return token < self._lanes.vocab_size and token not in self._choose.eos_ids

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Draft tokens by slot. Each forward pass adds one position to all runs that continue."""
        source = self._lanes
        room = {ask.slot: source.room(ask) for ask in asks}
        runs: dict[int, list[int]] = {ask.slot: [] for ask in asks}
        choices_by_slot: dict[int, list[Choice]] = {ask.slot: [] for ask in asks}
        to_feed = {ask.slot: source.missing(ask) for ask in asks}
        while to_feed:
            logits = source.extend(to_feed)
            slots = list(to_feed)
            requests, drafts = [source.request(slot) for slot in slots], [runs[slot] for slot in slots]
            min_p = [request.drafting.min_p for request in requests]
            apart = [request.verification.is_drawn for request in requests]
            choices = self._choose(logits, slots, drafts, least=min_p, apart=apart)
            to_feed = {}
            for slot, choice in zip(slots, choices, strict=True):
                if choice.token is None:
                    continue
                runs[slot].append(choice.token)
                choices_by_slot[slot].append(choice)
                if len(runs[slot]) < room[slot] and self._goes_on(choice.token):
                    to_feed[slot] = (choice.token,)
        drafts_by_slot: dict[int, Sequence[int]] = {**runs}
        for slot, drawn in choices_by_slot.items():
            if source.request(slot).verification.is_drawn:
                kept = tuple(choice.logits for choice in drawn if choice.logits is not None)
                chances = tuple(choice.probability for choice in drawn)
                drafts_by_slot[slot] = Drawn(tuple(runs[slot]), kept, chances)
        return drafts_by_slot


class ModelDrafter(AutoregressiveDrafter):
    """Drafts with a model of the same vocabulary. DraftLanes has its KV cache and decides when to prefill."""

    _lanes: DraftLanes

    def __init__(self, runner: ModelRunner) -> None:
        super().__init__(DraftLanes(runner))

    def bind(self, chooser: DraftSampler) -> None:
        super().bind(chooser)
        if (graphs := self._lanes.spec.graphs) is not None:
            graphs.notices = chooser.notices

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        runs = super().propose(self._to_read(asks))
        self._lanes.read_on()
        self.is_reading = self._lanes.is_reading
        return runs

    def _to_read(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        """Return the asks with their texts in the draft model's tokens."""
        return asks


_MAX_PASSES = 3  # draft model forward passes per requested draft token


@dataclass(slots=True)
class _DraftRun:
    """The run of one slot: tokens `drawn` by the draft model, and `tokens`, their text in target tokens.

    `most`: target tokens to propose. `enough`: target tokens after which drawing stops; one more than `most`
    where the draft model's tokens are shorter, because the last word may be incomplete. `passes`: maximum
    number of forward passes.
    """

    transcript: Transcript
    most: int
    enough: int
    passes: int
    drawn: list[int] = field(default_factory=list)
    tokens: tuple[int, ...] = ()


class TextModelDrafter(ModelDrafter):
    """Drafts through text, with a model whose vocabulary differs from the target's.

    The draft model decodes greedily in its own vocabulary, without the request's stages, until its text
    spells the requested number of target tokens. The drafts are plain sequences, q(token) = 1, under any
    acceptance policy.
    """

    def __init__(self, runner: ModelRunner, translation: Translation, notice: str = "") -> None:
        super().__init__(runner)
        self._translation = translation
        self._transcripts: dict[int, Transcript] = {}
        self._prompt: tuple[Request, Transcript] | None = None  # of the last request
        self.notices = (notice,) if notice else ()
        self.has_trees = False  # a token of the draft model may be a part of one of the target's

    def bind(self, chooser: DraftSampler) -> None:
        self._width = chooser.width

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample. Samples of one request share the translation of their prompt."""
        if self._prompt is None or self._prompt[0] is not request:
            self._prompt = request, _extended(Transcript(self._translation), request.prompt_ids)
        prompt = self._prompt[1]
        self._transcripts[slot] = prompt.fork()
        super().admit(slot, request)

    def release(self, slot: int) -> None:
        del self._transcripts[slot]
        super().release(slot)

    def trim(self) -> None:
        self._prompt = None
        super().trim()

    def _to_read(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        return [
            replace(ask, tokens=_extended(self._transcripts[ask.slot], ask.tokens).tokens) for ask in asks
        ]

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Draft tokens by slot. Each forward pass adds one draft model token to all runs that continue."""
        for slot, transcript in self._transcripts.items():  # later text may change the tokens at the end
            lane = self._lanes[slot]
            lane.num_confirmed = min(lane.num_confirmed, transcript.num_settled)
        runs, to_feed = dict[int, _DraftRun](), dict[int, tuple[int, ...]]()
        for ask in asks:
            transcript, to_feed[ask.slot] = self._transcripts[ask.slot], self._lanes.missing(ask)
            enough = ask.most + (len(ask.tokens) > transcript.num_read)
            passes = min(_MAX_PASSES * ask.most, self._lanes.spec.context - len(ask.tokens))
            runs[ask.slot] = _DraftRun(transcript, ask.most, enough, passes)
        while to_feed:
            slots = list(to_feed)
            logits = self._lanes.extend(to_feed)[:, : self._translation.draft.vocab_size]
            best, ids = logits.float().softmax(dim=-1).max(dim=-1)
            pairs = torch.stack([ids.float(), best], dim=1).tolist()  # one device synchronisation
            to_feed = {}
            for slot, (number, probability) in zip(slots, pairs, strict=True):
                is_likely, token = probability >= self._lanes.request(slot).drafting.min_p, int(number)
                if is_likely and self._add(runs[slot], token):
                    to_feed[slot] = (token,)
        return {slot: run.tokens[: run.most] for slot, run in runs.items()}

    def _add(self, run: _DraftRun, token: int) -> bool:
        """Add a token to the run. Return whether to draw another."""
        run.drawn.append(token)
        end = run.transcript
        tokens = self._translation.proposal(end.anchor, end.pending, run.drawn)
        if tokens is None:
            return False
        run.tokens = tuple(takewhile(lambda token: token < self._width, tokens))
        is_over = token in self._translation.stops or len(tokens) >= run.enough
        return not is_over and len(run.drawn) < run.passes


def _extended(transcript: Transcript, tokens: Sequence[int]) -> Transcript:
    """Append the tokens that the transcript lacks; return it."""
    for token in tokens[transcript.num_read :]:
        transcript.push(token)
    return transcript


_MAX_LAG = 64  # tokens; with a longer lag a lane prefills, and drafts in a later step
_CHUNK = 512  # prefill tokens per step


@dataclass(slots=True)
class DraftLane:
    """A slot's lane of the draft model; the first `num_confirmed` of its tokens are committed text.

    `is_fresh`: the lane holds no token of the current text.
    """

    cached: PrefixLane
    request: Request
    num_confirmed: int = 0
    is_fresh: bool = True


class DraftLanes:
    """The KV lanes of a draft model, one per slot. Tokens that a lane holds are not computed again.

    Before drafting, a lane is truncated to its common prefix with the text and fed the accepted tokens.
    Prompts are prefilled in chunks, one per step, after the drafts of other slots: on a GPU the target need
    not wait for them (see SideStreamRunner). Where `drafts_decide`, the whole prompt is prefilled before it.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner, self.spec, self._cache = runner, runner.spec, PrefixLanes(runner)
        self._lanes: dict[int, DraftLane] = {}
        self._waiting: list[DraftAsk] = []  # slots that prefill, and draft in a later step
        self.is_reading = False  # whether the last `catch_up` found a text to prefill

    def __getitem__(self, slot: int) -> DraftLane:
        return self._lanes[slot]

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    def request(self, slot: int) -> Request:
        return self._lanes[slot].request

    def room(self, ask: DraftAsk) -> int:
        """Return the maximum number of drafts for an ask: its lane may not become full or be recomputed."""
        return min(ask.most, self.spec.limit(len(ask.tokens)) - len(ask.tokens))

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample. Tokens that earlier samples left in the lanes are reused where they match."""
        self._lanes[slot] = DraftLane(self._cache[slot], request)

    def release(self, slot: int) -> None:
        del self._lanes[slot]

    def trim(self) -> None:
        self._cache.clear()
        self._lanes.clear()
        self._runner.free_cache()

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft now: their lanes lack at least one and at most 64 tokens."""
        able = [ask for ask in asks if self._align(ask, asks)]
        behind = [ask for ask in able if self._lag(ask) > _MAX_LAG]
        self.is_reading = bool(behind)
        # Drafting may start later where a step without drafts changes no text.
        self._waiting = [ask for ask in behind if not self._lanes[ask.slot].request.drafts_decide]
        urgent = [ask for ask in behind if self._lanes[ask.slot].request.drafts_decide]
        while urgent := [ask for ask in urgent if self._lag(ask) > _MAX_LAG]:
            self._read(urgent)
        waiting = {ask.slot for ask in self._waiting}
        return [ask for ask in able if ask.slot not in waiting]

    def read_on(self) -> None:
        """Prefill one chunk of the texts that draft in a later step. Call it after drafting."""
        self._read(self._waiting)

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Tokens at the end of the text that its lane lacks."""
        return tuple(ask.tokens[len(self._lanes[ask.slot].cached) :])

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> torch.Tensor:
        """Feed tokens by slot. Return the logits [len(parts), V] after the last token of each."""
        return self._feed([Feed(slot, len(self._lanes[slot].cached), part) for slot, part in parts.items()])

    @property
    def branching(self) -> Branching:
        return "nodes" if self.spec.trees else "none"

    def branch(self, levels: Mapping[int, TreeLevel]) -> torch.Tensor:
        feeds = [
            Feed(slot, len(self._lanes[slot].cached), level.tokens, len(level.tokens), parents=level.parents)
            for slot, level in levels.items()
        ]
        return self._feed(feeds)

    def _lag(self, ask: DraftAsk) -> int:
        return len(ask.tokens) - len(self._lanes[ask.slot].cached)

    def _align(self, ask: DraftAsk, asks: Sequence[DraftAsk]) -> bool:
        """Truncate the lane to its common prefix with the text; whether the model can read the text."""
        text = ask.tokens
        if not 0 < len(text) < self.spec.context:
            return False
        lane = self._lanes[ask.slot]
        cached, last = lane.cached, len(text) - 1  # the last token is always fed
        if lane.is_fresh and not self._is_being_read(lane.request, asks):
            self._cache.reuse(cached, text[:last], lane.request.salt)
        start, end = min(lane.num_confirmed, last), min(len(cached), last)
        lane.num_confirmed = start + shared_length(cached.tokens[start:end], [*text[start:end]])
        cached.truncate(lane.num_confirmed)
        lane.is_fresh = lane.is_fresh and not lane.num_confirmed
        return max(text[lane.num_confirmed :]) < self.spec.vocab_size

    def _is_being_read(self, request: Request, asks: Sequence[DraftAsk]) -> bool:
        """Whether another sample of the request is prefilling. Its lane is copied when it has finished."""
        behind = (self._lanes[ask.slot] for ask in asks if self._lag(ask) > _MAX_LAG)
        return any(lane.request is request and not lane.is_fresh for lane in behind)

    def _read(self, asks: Sequence[DraftAsk]) -> None:
        """Prefill up to one chunk in all, for at most one sample of each request."""
        left, feeds, reading = _CHUNK, list[Feed](), set[int]()
        for ask in asks:
            lane = self._lanes[ask.slot]
            if not left or id(lane.request) in reading:
                continue
            start = len(lane.cached)
            part = tuple(ask.tokens[start : min(start + left, len(ask.tokens) - 1)])
            feeds.append(Feed(ask.slot, start, part, num_logits=0, text_length=len(ask.tokens)))
            reading.add(id(lane.request))
            lane.is_fresh = False
            left -= len(part)
        if feeds:
            self._feed(feeds)

    def _feed(self, feeds: Sequence[Feed]) -> torch.Tensor:
        logits = self._runner.forward(StepPlan(tuple(feeds)))
        for feed in feeds:
            straight = max(0, num_straight(feed.parents) - len(feed.parents) + len(feed.tokens))
            # Keys and values behind a branch are those of no text.
            tokens = (*feed.tokens[:straight], *(-1,) * (len(feed.tokens) - straight))
            self._lanes[feed.lane].cached.extend(tokens)
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A draft token and its probability; token None if none could be chosen or it was too improbable.

    `logits` [V]: the distribution it was sampled from, if it was sampled with independent noise.
    """

    token: int | None
    probability: float
    logits: Tensor | None = None


class DraftSampler:
    """Samples from draft logits as the engine samples from the target's.

    Reads the committed state of the slots and changes none of it. Draft and target use the same noise at the
    same position, so that they agree wherever their distributions do. Under rejection sampling their noise
    must be independent (`apart`): with shared noise, dropping a low-probability draft would bias the
    replacement.
    """

    def __init__(self, pipeline: Pipeline, sampler: Sampler, history: History) -> None:
        self._pipeline, self._sampler, self._history = pipeline, sampler, history
        self._chooser = Chooser(pipeline, sampler)  # of its own, as its rows differ from the engine's
        self.width, self.eos_ids = pipeline.env.vocab_size, pipeline.env.eos_ids
        self.device, self.notices = pipeline.env.device, pipeline.notices

    def __call__(
        self,
        logits: Tensor,
        slots: Sequence[int],
        drafts: Sequence[Sequence[int]],
        *,
        least: Sequence[float],
        apart: Sequence[bool],
    ) -> list[Choice]:
        """Choose a token from each row of logits [Q, W]; row q follows `drafts[q]` in `slots[q]`.

        W may differ from the target's vocabulary size: ids that only one of the models has are not chosen.
        `least`: minimum probability by row; a less probable token becomes None. `apart`: rows that use
        independent noise. Without either, probabilities are not computed and are 1.
        """
        rows = self._pipeline.prepare(Rows.behind(self._history, slots, drafts))
        wide = as_wide(logits, self.width, self._history.device)
        seeds, reads = None, any(least) or any(apart)
        if any(apart):
            keys = [self._history.seed(slot) for slot in slots]
            keys = [_draft_seed(key) if is_apart else key for key, is_apart in zip(keys, apart, strict=True)]
            seeds = upload_ints(keys, self._history.device)
        processed, tokens = self._chooser.process(wide, rows, reads=reads, seeds=seeds)
        if tokens is None:
            assert processed is not None
            seeded = rows if seeds is None else replace(rows, seeds=seeds)
            tokens = sampled(self._sampler, processed, seeded)
        if processed is None or not reads:
            return [Choice(token if token >= 0 else None, 1.0) for token in tokens.tolist()]
        min_p = [bound if is_apart else 0.0 for bound, is_apart in zip(least, apart, strict=True)]
        if any(min_p):  # tokens less probable than this are dropped, so they are masked
            low = upload(min_p, processed.device)[:, None]
            processed = processed.masked_fill(processed.softmax(dim=-1) < low, -torch.inf)
        probabilities = token_probability(processed, tokens.clamp(min=0))
        pairs = torch.stack([tokens.double(), probabilities.double()]).tolist()
        return [
            Choice(int(token) if token >= 0 and chance >= bound else None, chance, row if is_apart else None)
            for token, chance, bound, is_apart, row in zip(*pairs, least, apart, processed, strict=True)
        ]

    def rank(
        self,
        logits: Tensor,
        slots: Sequence[int],
        drafts: Sequence[Sequence[int]],
        *,
        count: int,
        least: Sequence[float],
    ) -> list[Ranking]:
        """Rank the tokens that may follow, at most `count` for each row of logits [Q, W] (see `__call__`).

        The first one is what would be drawn. The others have the largest log-probabilities; where the draw
        adds noise to logits, so do these, as the target adds the same. The first one has at least theirs.
        If the chain leaves one token alone, as a temperature of 0 does, log-probabilities are those before
        the stages that scale and truncate. Less probable tokens than `least` are left out.
        """
        pipeline, rows = self._pipeline, Rows.behind(self._history, slots, drafts)
        if pipeline.program(rows).preparing and len(turns := _turns(slots)) > 1:
            rankings = dict[int, Ranking]()
            for at in turns:  # a grammar follows one run of drafts of a slot at a time
                part = logits[upload_ints(at, logits.device)]
                of_turn = [slots[row] for row in at], [drafts[row] for row in at]
                ranked = self.rank(part, *of_turn, count=count, least=[least[row] for row in at])
                rankings |= zip(at, ranked, strict=True)
            return [rankings[row] for row in range(len(slots))]
        rows = pipeline.prepare(rows)
        wide = as_wide(logits, self.width, self._history.device)
        calls, phase = pipeline.program(rows).calls, pipeline.registry.phase
        head = [*takewhile(lambda call: phase(call.stage) < Phase.SCALE, calls)]
        early = pipeline.run(head, wide, rows)
        processed = pipeline.run(calls[len(head) :], early, rows)
        drawn = sampled(self._sampler, processed, rows)[:, None]
        num_left = (processed > -torch.inf).sum(-1, keepdim=True)
        base = torch.where(num_left > 1, processed, early).log_softmax(-1)
        ids = torch.cat((drawn.clamp(min=0), base.topk(min(max(count, _POOL), self.width)).indices), dim=1)
        plain = base.gather(1, ids).double()
        is_again = (ids == drawn) & (torch.arange(ids.shape[1], device=ids.device) > 0)
        scores = plain.masked_fill(is_again | (drawn < 0), -torch.inf)
        is_noisy = upload([draw == "gumbel" for draw in self._sampler.draws(rows)], ids.device)[:, None]
        noise = gumbel(row_keys(rows.seeds, rows.positions, Stream.TOKEN)[:, None], ids)
        is_noisy = is_noisy & (num_left > 1) & (num_left <= PLAIN_LIMIT)
        scores = torch.where(is_noisy, (scores + noise).log_softmax(-1), scores)
        scores[:, 0] = scores.amax(-1)
        low = upload(least, ids.device, torch.float64)[:, None]
        scores, order = scores.masked_fill(plain.exp() < low, -torch.inf).sort(descending=True, stable=True)
        table = torch.stack([ids.gather(1, order)[:, :count].double(), scores[:, :count]], dim=-1)
        lines: list[list[list[float]]] = table.tolist()
        return [[(int(token), score) for token, score in line if score > -torch.inf] for line in lines]

    def has_grammar(self, slots: Sequence[int]) -> bool:
        """Whether a grammar decides what may follow each draft of one of the slots."""
        return bool(self._pipeline.program(Rows.behind(self._history, slots, [()] * len(slots))).preparing)

    def noise(self, slot: int) -> Noise | None:
        """The noise that the slot's draw will add to logits; None for a draw without additive noise."""
        return self._sampler.noise(slot, self._history.seed(slot))


def _turns(slots: Sequence[int]) -> list[list[int]]:
    """Return the indices of slots in groups without repetition, as few as there can be."""
    turns: list[list[int]] = []
    counts = Counter[int]()
    for row, slot in enumerate(slots):
        if counts[slot] == len(turns):
            turns.append([])
        turns[counts[slot]].append(row)
        counts[slot] += 1
    return turns


_POOL = 64  # tokens that are ranked by what noise makes of them


@lru_cache(256)
def _draft_seed(seed: int) -> int:
    return signed(row_key(seed, 0, Stream.DRAFT))
