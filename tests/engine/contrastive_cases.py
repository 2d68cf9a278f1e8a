"""Requests for contrastive search, and the search written plainly, without caches and lanes."""

from dataclasses import dataclass

import torch

from gencli.core.request import Contrastive
from processors.standalone import LogitsProcessor
from tests.engine.harness import TOKENIZER, events_of, ids_of
from tests.engine.harness import request as any_request
from tests.processors.reference.draw_twins import contrastive_scores


def request(text="Hello", *, alpha=0.6, k=4, **rest):
    """A request for a contrastive search."""
    return any_request(text, contrastive=Contrastive(alpha, k), **rest)


def tokens(requests, **options):
    """The ids of each request's output, by request id."""
    found = ids_of(events_of(requests, **options))
    return {one.id: [*found.get((one.id, 0), ())] for one in requests}


@dataclass(frozen=True)
class Plain:
    """The search as its paper has it: `read` returns logits [L, V] and last states [L, H] of ids."""

    read: object
    ends: tuple = TOKENIZER.eos_ids

    @torch.inference_mode()
    def ids(self, one, chain=""):
        """The ids of an output: each step reads the text of each candidate from its beginning."""
        process = LogitsProcessor(chain, vocabulary=TOKENIZER, eos_ids=self.ends)
        text, alpha, k = list(one.prompt_ids), one.contrastive.alpha, one.contrastive.k
        while len(text) < len(one.prompt_ids) + one.limits.max_tokens:
            logits, states = self.read(text)
            row = process(torch.tensor([text]), logits[-1:].float())[0].double().softmax(-1)
            ranked = sorted(range(len(row)), key=lambda token: -row[token])[:k]
            allowed = [token for token in ranked if row[token] > 0]
            behind = [self.read([*text, token])[1][-1].tolist() for token in allowed]
            scores = contrastive_scores(row[allowed].tolist(), behind, states.tolist(), alpha)
            text.append(allowed[max(range(len(allowed)), key=scores.__getitem__)])
            if text[-1] in self.ends:
                break
        return text[len(one.prompt_ids) :]
