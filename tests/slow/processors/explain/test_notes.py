"""A stage says what it did to a token, and why it did nothing."""

from itertools import product

from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.explain_rows import explain_rows
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler
from processors.testing.checks import TEXTS, random_logits, toy_env
from processors.testing.examples import EXAMPLES


def test_every_stage_can_be_explained_in_every_text():
    env = toy_env()
    for spec, text in product(BUILTIN, TEXTS):
        pipeline, sampler, history, params = Pipeline(env), Sampler(), History(), EXAMPLES[spec.params]
        for slot, one in enumerate(params):
            history.admit(slot, text.prompt, seed=slot)
            pipeline.admit(slot, Chain(((spec.name, one),)), text.admission)
            sampler.admit(slot, "gumbel")
            history.append([slot], [text.output])
            pipeline.commit(slot, text.output)
        drafts = [text.drafts] * len(params)
        rows = pipeline.prepare(Rows.build(history, range(len(params)), drafts))
        logits = random_logits(len(rows), env)
        tokens = sampler(pipeline(logits, rows), rows).clamp(min=0)
        for view in explain_rows(pipeline, sampler, logits, rows, tokens, ["gumbel"] * len(rows)):
            for stage in view.stages:
                assert stage.acted != bool(stage.why_not), (spec.name, text)
                assert isinstance(stage.note, str), (spec.name, text)
