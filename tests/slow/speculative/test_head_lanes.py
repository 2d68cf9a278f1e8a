"""Random walks of texts with draft heads: lanes hold what the texts say, as a fresh prefill would."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

from tests.speculative.head_cases import DRAFTING, SHAPE, Drafts, admit, held, logits_of

SLOTS = 3


@dataclass
class Text:
    """A text in a slot: its tokens, how many the target has read, and where the head's lane begins."""

    tokens: list[int]
    fed: int
    base: int
    is_running: bool = True


class Walk:
    """Random steps of a target with drafts of random tokens, of which random ones are accepted."""

    def __init__(self, drafts: Drafts, seed: int) -> None:
        self.drafts, self.random = drafts, random.Random(seed)
        self.texts: dict[int, Text] = {}

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(SHAPE.vocab) for _ in range(count)]

    def step(self) -> None:
        kind = self.random.choice(("begin", "begin", "end", "back", *["draft"] * 8))
        slot = self.random.randrange(SLOTS)
        text = self.texts.get(slot)
        if text is None or not text.is_running:
            self.begin(slot)
        elif kind == "end":
            text.is_running = False
            self.drafts.drafter.release(slot)
        elif kind == "back":
            self.back(text)
        self.draft()

    def begin(self, slot: int) -> None:
        """Begin a text, perhaps behind a prefix of what a lane has, perhaps where no lane has the states."""
        source = self.random.choice([*self.texts, slot])
        old, start, base = self.texts.get(source), 0, 0
        tokens = self.tokens(self.random.randint(2, 12))
        if old is not None and old.fed > 1 and self.random.random() < 0.7:
            start = self.random.randint(1, old.fed)
            tokens = [*old.tokens[:start], *tokens]
            base = old.base if old.base < start else start
        elif self.random.random() < 0.2:
            start = base = self.random.randint(1, len(tokens) - 1)
        if is_first := self.random.random() < 0.5:
            admit(self.drafts.drafter, slot)
        if start and old is not None and source != slot and base in (old.base, start):
            self.drafts.drafter.fork(source, slot)
        if not is_first:
            admit(self.drafts.drafter, slot)
        text = self.texts[slot] = Text(tokens, start, base)
        while text.fed < len(tokens):
            end = min(len(tokens), text.fed + self.random.randint(1, 6))
            # The newest token is chosen in the step that reads the end of the prompt.
            whole = [*tokens, *self.tokens(1)] if end == len(tokens) else tokens
            self.drafts.feed([(slot, whole, text.fed, end)])
            text.tokens, text.fed = whole, end

    def back(self, text: Text) -> None:
        """Take tokens back, and choose another one there."""
        if (end := self.random.randint(max(1, text.base), text.fed)) > text.base:
            text.tokens[end:] = self.tokens(1)
            text.fed = end

    def draft(self) -> None:
        """Draft for some texts in one pass for each position; then accept a number of the drafts."""
        running = [slot for slot, text in self.texts.items() if text.is_running]
        slots = self.random.sample(running, self.random.randint(0, len(running)))
        paths = {slot: self.tokens(self.random.randint(0, self.drafts.depth - 1)) for slot in slots}
        asks = {slot: (self.texts[slot].tokens, path) for slot, path in paths.items()}
        for _ in range(self.random.choice((1, 1, 2))):  # a step that failed is drafted for again
            found = self.drafts.logits(asks)
        parts = []
        for slot, path in paths.items():
            text = self.texts[slot]
            if slot in found:
                wanted = self.drafts.expected(text.tokens, path, text.base)
                torch.testing.assert_close(found[slot], wanted, rtol=1e-5, atol=2e-5)
            accepted = path[: self.random.randint(0, len(path))]
            text.tokens = [*text.tokens, *accepted, *self.tokens(1)]
            parts.append((slot, text.tokens, text.fed, len(text.tokens) - 1))
            text.fed = len(text.tokens) - 1
        self.drafts.feed(parts)


@pytest.mark.parametrize("kind", DRAFTING)
def test_a_lane_holds_what_its_text_says_after_any_steps(kind, tmp_path):
    drafts = Drafts.of(kind, tmp_path)
    walk = Walk(drafts, seed=DRAFTING.index(kind))
    for _ in range(50):
        walk.step()
    for slot, text in walk.texts.items():
        if not text.is_running or drafts.file.kind == "medusa":
            continue
        fresh, path = drafts.fresh(), [1, 2, 3][: drafts.depth - 1]
        admit(fresh, 0)
        fresh.feed([drafts.features(0, text.tokens, text.base, text.fed)])
        found = [
            logits_of(drafts.drafter, {slot: (text.tokens, path)})[slot],
            logits_of(fresh, {0: (text.tokens, path)})[0],
        ]
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
        count = text.fed - text.base
        pairs = zip(held(drafts.drafter._lanes, slot, count), held(fresh._lanes, 0, count), strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
