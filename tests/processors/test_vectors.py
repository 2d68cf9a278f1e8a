"""Every golden case of another system gives what it says there, or differs by a documented decision."""

import runpy
from pathlib import Path

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.errors import ParamError
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.processors.vectors import exllama, formulas, llama_cpp, mlx_lm, transformers

CASES = (
    *llama_cpp.CASES,
    *llama_cpp.TRUNCATION,
    *transformers.TRUNCATION,
    *mlx_lm.TRUNCATION,
    *exllama.TRUNCATION,
    *formulas.TRUNCATION,
    *llama_cpp.HISTORY,
    *transformers.HISTORY,
    *mlx_lm.HISTORY,
    *exllama.HISTORY,
    *transformers.FORCING,
    *llama_cpp.TEMPERATURE,
    *transformers.TEMPERATURE,
    *exllama.TEMPERATURE,
    *formulas.TEMPERATURE,
)


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
    words = Words(case.texts) if case.texts else None
    pipeline, history = Pipeline(Env(len(case.logits), words, case.eos)), History()
    history.admit(0, case.prompt, seed=case.seed)
    pipeline.admit(0, Chain.parse(case.chain), Admission(case.prompt))
    history.append([0], [case.output])
    pipeline.commit(0, case.output)
    return pipeline(torch.tensor([case.logits]), Rows.build(history, [0]))[0]


def is_expected(case):
    try:
        logits = processed(case)
    except ParamError:
        return False
    if case.kept is not None:
        return tuple(torch.nonzero(logits > -torch.inf).flatten().tolist()) == case.kept
    found, expected = (logits.softmax(0), case.p) if case.p is not None else (logits, case.logits_after)
    return torch.allclose(
        found, torch.tensor(expected, dtype=torch.float32), rtol=case.within, atol=case.within
    )


def test_each_case_is_as_its_source_says_or_differs_by_decision():
    wrong = [str(case) for case in CASES if is_expected(case) is bool(case.differs)]
    assert wrong == []


def test_the_page_lists_the_cases():
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "vector_table.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run scripts/vector_table.py"
