"""All texts of three letters that a chain lets come, and what the pipeline makes of two models there."""

import math
from itertools import product

import torch

from gencli.text.tokenizer import ByteTokenizer
from processors.base import Admission, Env
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows

LETTERS = tuple(b"abcdef")
COLUMNS = (*LETTERS, ord("z"))  # the last of which is never probable
WIDTH, NEVER = len(COLUMNS), len(LETTERS)
DRAFTS, LENGTH = 2, 3
PROMPT = LETTERS[:1]
PAIRS = ("equal", "near", "opposed", "target narrower", "draft narrower", "no overlap")


def models(pair):
    """Logits [WIDTH, WIDTH] by the last letter: the target's, and those of the model that drafts."""
    generator = torch.Generator().manual_seed(3)
    target, other = (1.5 * torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(2))
    even = torch.arange(WIDTH) % 2 == 0
    near = 0.8 * target + 0.6 * other
    target, source = {
        "equal": (target, target),
        "near": (target, near),
        "opposed": (target + 2 * even, other - 2 * even),
        "target narrower": (target.masked_fill(~even, -math.inf), near),
        "draft narrower": (target, near.masked_fill(even, -math.inf)),
        "no overlap": (target.masked_fill(~even, -math.inf), other.masked_fill(even, -math.inf)),
    }[pair]
    never = torch.arange(WIDTH) == NEVER
    return target.masked_fill(never, -math.inf), source.masked_fill(never, -math.inf)


class Texts:
    """Texts as numbers: 0 is empty, those below `num_open` are not complete and have the slot of that number.

    chances [N] float64 are their probabilities without drafts, after [N, WIDTH] the text that is one letter
    longer or -1, places [N] their lengths, last [N] their last letters. p [S, L, L, 3, WIDTH] are the
    target's processed logits behind each open text and two drafts, q [S, L, L, 3, WIDTH] the draft's.
    """

    def __init__(self, chain, pair):
        self.target, self.source = models(pair)
        self._chain, self._history = chain, History(slots=1 + WIDTH + WIDTH**2)
        self._pipeline = Pipeline(Env(258, ByteTokenizer(), (257,), torch.device("cpu")))
        self._texts, chances, after = [()], [1.0], []
        while len(self._texts[len(after)]) < LENGTH:
            self._admit(len(after))
            after.append([-1] * WIDTH)
            for letter, chance in enumerate(self._probable(len(after) - 1)):
                if chance > 0:
                    after[-1][letter] = len(self._texts)
                    chances.append(chances[len(after) - 1] * chance)
                    self._texts.append((*self._texts[len(after) - 1], letter))
        self.num_open = len(after)
        self.chances = torch.tensor(chances, dtype=torch.float64)
        self.after = torch.tensor(after)
        self.places = torch.tensor([len(text) for text in self._texts])
        self.last = torch.tensor([(0, *text)[-1] for text in self._texts])
        self.p, self.q = self._behind_drafts()

    def _admit(self, slot):
        """Commit a text as the engine does, a token at a time."""
        self._history.admit(slot, PROMPT, seed=0)
        self._pipeline.admit(slot, self._chain, Admission(prompt=PROMPT, max_tokens=500))
        for letter in self._texts[slot]:
            ids = [LETTERS[letter]]
            forced = any(one.forced for one in self._pipeline.preview(slot, ids))
            self._history.append([slot], [ids], [[forced]])
            self._pipeline.commit(slot, ids)

    def _probable(self, slot):
        rows = self._pipeline.prepare(Rows.build(self._history, [slot]))
        return self._processed(self.target, rows)[0].double().softmax(-1).tolist()

    def _behind_drafts(self):
        parts = []
        for run in product(LETTERS, repeat=DRAFTS):
            rows = Rows.build(self._history, range(self.num_open), [run] * self.num_open)
            rows = self._pipeline.prepare(rows)
            parts.append([self._processed(table, rows) for table in (self.target, self.source)])
        shape = self.num_open, len(LETTERS), len(LETTERS), DRAFTS + 1, WIDTH
        return tuple(
            torch.stack([one.view(self.num_open, -1, WIDTH) for one in side], dim=1).view(shape)
            for side in zip(*parts, strict=True)
        )

    def _processed(self, table, rows):
        """The pipeline's logits [R, WIDTH] for the table of a model."""
        texts = (
            (0, *self._texts[slot], *map(LETTERS.index, run))
            for slot, run in zip(rows.host_slots, rows.host_drafts, strict=True)
        )
        logits = torch.full((len(rows), 258), -math.inf)
        logits[:, COLUMNS] = table[[text[-1] for text in texts]]
        return self._pipeline(logits, rows)[:, COLUMNS]
