"""Runs a golden case, with public names of `processors` only."""

import torch

from processors import Admission, Chain, Env, History, Pipeline, Rows

__all__ = ["processed"]


class Words:
    """A vocabulary of the texts of a case."""

    special_ids = frozenset()

    def __init__(self, texts):
        self.token_bytes = [text.encode() for text in texts]
        self.vocab_size = len(texts)

    def encode(self, text, *, special=True):
        ids, data = [], text.encode()
        while data:
            ids.append(max((i for i, b in enumerate(self.token_bytes) if b and data.startswith(b)),
                           key=lambda i: len(self.token_bytes[i])))  # fmt: skip
            data = data[len(self.token_bytes[ids[-1]]) :]
        return ids


def processed(case):
    """The processed logits of a case."""
    words = Words(case.texts) if case.texts else None
    pipeline, history = Pipeline(Env(len(case.logits), words, case.eos)), History()
    history.admit(0, case.prompt, seed=case.seed)
    pipeline.admit(0, Chain.parse(case.chain), Admission(case.prompt))
    history.append([0], [case.output])
    pipeline.commit(0, case.output)
    return pipeline(torch.tensor([case.logits]), Rows.build(history, [0]))[0]
