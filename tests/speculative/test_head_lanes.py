"""Lanes of draft heads hold what the text says, whatever was accepted, taken back, copied and left before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.speculative.head_cases import DRAFTING, SHAPE, Drafts, admit, held, logits_of

LONG = torch.randint(0, SHAPE.vocab, (560,), generator=torch.Generator().manual_seed(4)).tolist()
RECURSIVE = [kind for kind in DRAFTING if kind != "medusa"]


@pytest.mark.parametrize("kind", RECURSIVE)
def test_chunks_of_a_prompt_change_no_bit(kind, tmp_path):
    drafts, known, path = Drafts.of(kind, tmp_path), len(LONG) - 1, [3, 4]
    whole, found = drafts.features(0, LONG, 0, known), []
    for size in (known, 512, 90):
        drafter = drafts.fresh()
        admit(drafter, 0)
        for start in range(0, known, size):
            end = min(known, start + size)
            drafter.feed([replace(whole, start=start, end=end, states=cut(whole.states, start, end))])
        found.append([logits_of(drafter, {0: (LONG, path)})[0], *held(drafter._lanes, 0, known)])
    torch.testing.assert_close(found[0][0], drafts.expected(LONG, path), rtol=1e-5, atol=1e-4)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("kind", DRAFTING)
def test_other_slots_change_no_bit(kind, tmp_path):
    drafts, alone = Drafts.of(kind, tmp_path), {}
    together, texts = drafts.fresh(), {slot: LONG[slot * 90 : slot * 99 + 30] for slot in range(3)}
    paths = {slot: [7, 8, 9][: min(slot + 1, drafts.depth - 1)] for slot in texts}
    admit(together, *texts)
    for first, last in ((0, 0.5), (0.5, 1)):
        parts = []
        for slot, text in texts.items():
            known = len(text) - 1
            parts.append(drafts.features(slot, text, int(first * known), int(last * known)))
        together.feed(parts)
        for part in parts:
            one = alone.setdefault(part.slot, drafts.fresh())
            if first == 0:
                admit(one, part.slot)
            one.feed([part])
    found = logits_of(together, {slot: (text, paths[slot]) for slot, text in texts.items()})
    for slot, text in texts.items():
        assert torch.equal(found[slot], logits_of(alone[slot], {slot: (text, paths[slot])})[slot])


def test_a_text_that_goes_on_behind_another_is_not_computed_again(tmp_path):
    drafts, text = Drafts.of("eagle3", tmp_path), LONG[:200]
    admit(drafts.drafter, 0)
    drafts.feed([(0, text, 0, 199)])
    drafts.logits({0: (text, [])})
    drafts.drafter.release(0)
    longer = [*text[:150], *LONG[300:303]]
    # Entry 149 is computed anew where another token follows; of the copy it is that of the same text.
    for slot, first in ((0, 149), (1, 150)):
        if slot:
            drafts.drafter.fork(0, slot)
        admit(drafts.drafter, slot)
        drafts.feed([(slot, longer, 150, 152)])
        found = drafts.logits({slot: (longer, [6])})
        assert drafts.drafter._lanes._runs[slot].first == first
        torch.testing.assert_close(found[slot], drafts.expected(longer, [6]), rtol=1e-5, atol=1e-5)


def test_a_lane_that_begins_within_a_text_is_that_of_no_other_text(tmp_path):
    drafts, text = Drafts.of("eagle3", tmp_path), LONG[:20]
    admit(drafts.drafter, 0)
    drafts.feed([(0, text, 5, 19)])
    drafts.logits({0: (text, [])})
    other = [*text[:2], *LONG[30:50]]
    admit(drafts.drafter, 0)
    drafts.feed([(0, other, 5, 21)])
    torch.testing.assert_close(drafts.logits({0: (other, [])})[0], drafts.expected(other, [], base=5))
    third = [*other[:2], *other[5:]]  # equal to what is left of the tokens
    admit(drafts.drafter, 0)
    drafts.feed([(0, third, 17, 18)])
    torch.testing.assert_close(drafts.logits({0: (third, [])})[0], drafts.expected(third, [], base=17))


def test_memory_is_freed_when_no_slot_is_in_use(tmp_path):
    drafts, lanes = Drafts.of("deepseek llama of three layers", tmp_path), None
    for _ in range(2):
        admit(drafts.drafter, 0, 1)
        drafts.feed([(0, LONG[:40], 0, 39), (1, LONG[:50], 0, 49)])
        drafts.logits({0: (LONG[:40], [1]), 1: (LONG[:50], [])})
        lanes = drafts.drafter._lanes
        before = lanes.nbytes
        drafts.drafter.release(0)
        drafts.drafter.release(1)
        assert lanes.nbytes == before > 0
        drafts.drafter.trim()
        assert lanes.nbytes == 0


def cut(states, start, end):
    return tuple(rows[start:end] for rows in states)
