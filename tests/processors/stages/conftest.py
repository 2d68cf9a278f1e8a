"""Run one stage on one row."""

import pytest
import torch

from processors.base import Admission, Env
from processors.history import History
from processors.registry import builtin_registry
from processors.rows import Rows
from processors.testing import ToyVocabulary


@pytest.fixture
def vocabulary():
    return ToyVocabulary()


@pytest.fixture
def run():
    """run(name, params, logits) -> logits as a list; with drafts, of the row that sees them all."""

    def run_stage(name, params, logits, *, prompt=(), output=(), drafts=(), stop_ids=(), **env):
        stage_class = builtin_registry().load(name)
        stage = stage_class(Env(len(logits), **env))
        history = History()
        history.admit(0, prompt)
        stage.admit(0, stage_class.Params(**params), Admission(tuple(prompt), tuple(stop_ids)))
        history.append([0], [output])
        stage.commit(0, output)
        rows = Rows.build(history, [0], [drafts])
        work = torch.tensor([logits] * len(rows), dtype=torch.float32)
        return stage.apply(work, rows)[-1].tolist()

    return run_stage


@pytest.fixture
def kept(run):
    """As `run`, but the ids that are left."""

    def run_and_list(*args, **kwargs):
        return [token for token, logit in enumerate(run(*args, **kwargs)) if logit != -torch.inf]

    return run_and_list
