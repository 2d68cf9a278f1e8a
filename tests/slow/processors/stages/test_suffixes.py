"""The lengths of repeated suffixes, against comparing token by token."""

import random
from functools import partial

import torch

from processors.history import History
from processors.rows import Rows
from processors.stages.repeats import Suffixes
from tests.processors.stages.test_suffixes import compared


def drawn(rng, letters, most):
    return [rng.randrange(letters) for _ in range(rng.randint(0, most))]


def test_lengths_follow_commits_drafts_forks_and_new_requests():
    for letters in [1, 2, 4]:
        rng = random.Random(letters)
        some = partial(drawn, rng, letters)
        history, suffixes = History(slots=1, length=2), Suffixes(torch.device("cpu"))
        texts = {}
        for _ in range(300):
            slot = rng.randrange(5)
            match rng.choice("admit append append append fork".split()):
                case "admit":
                    texts[slot] = some(30)
                    history.admit(slot, texts[slot])
                    suffixes.admit(slot, texts[slot])
                case "append" if slot in texts:
                    new = some(rng.choice((1, 3, 25)))
                    texts[slot] = texts[slot] + new
                    history.append([slot], [new])
                    suffixes.commit(slot, new)
                case "fork" if slot in texts:
                    other = (slot + 1) % 5
                    texts[other] = texts[slot]
                    history.fork(slot, other, seed=0)
                    suffixes.copy(slot, other)
            slots = [slot for slot in texts if rng.random() < 0.6]
            if not slots:
                continue
            drafts = [some(3) for _ in slots]
            rows = Rows.build(history, slots, drafts)
            ids = rows.visible().ids
            if ids.shape[1]:
                seen = [texts[slot] + list(run[:n]) for slot, run in zip(slots, drafts, strict=True)
                        for n in range(len(run) + 1)]  # fmt: skip
                for found, text in zip(suffixes.gather(rows, ids).tolist(), seen, strict=True):
                    assert found[: len(text)] == compared(text), letters
