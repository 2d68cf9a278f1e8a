"""The profile hf beside the transformers that is installed: values, processors in their order, length."""

from transformers import LogitsProcessorList

from gencli.config.job import make_job
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.config.test_compat import CHAINS, NAMES, model, profile
from tests.helpers.profiles import far_rows, random_rows
from tests.helpers.tiny_steps import far_steps, steps
from tests.models.tiny_models import VOCAB

# A value of transformers whose option has another name.
OPTIONS = {"typical_p": "typical", "epsilon_cutoff": "epsilon", "eta_cutoff": "eta",
           "no_repeat_ngram_size": "no_repeat_ngram"}  # fmt: skip

ROWS = 10_000


def hf_logits(model, ids, logits, values):
    """What transformers' own processors of a sampled generate() make of the logits."""
    config, _ = model._prepare_generation_config(None, do_sample=True, max_new_tokens=20, **values)
    made = model._get_logits_processor(config, input_ids_seq_length=ids.shape[1])
    assert isinstance(made, LogitsProcessorList)
    return made(ids, logits.clone())


def own_logits(profile, ids, logits, values):
    chain = make_job(profile).assembly.chain
    for name, value in values.items():
        stage, field = NAMES[name]
        if chain.get(stage) is None:
            chain = chain.with_stage(stage, **{field: value})
        chain = Chain(tuple((n, p.replace(**{field: value}) if n == stage else p) for n, p in chain))
    history, pipeline = History(), Pipeline(Env(VOCAB))
    chain = Chain(chain.active().stages)
    for slot, prompt in enumerate(map(tuple, ids.tolist())):
        history.admit(slot, prompt)
        pipeline.admit(slot, chain, Admission(prompt))
    return pipeline(logits.clone(), Rows.build(history, list(range(len(ids)))))


def assert_rows_are_those_of_transformers(profile, model, name, *, ties):
    ids, logits = random_rows(ROWS, VOCAB, ties=ties, extremes=True)
    theirs, own = hf_logits(model, ids, logits, CHAINS[name]), own_logits(profile, ids, logits, CHAINS[name])
    # A sum that ends within its rounding of a threshold may fall on either side: transformers adds float32.
    assert far_rows(own, theirs, ties=ties) <= ROWS // 250, (name, ties)


def assert_texts_are_those_of_transformers(model, name):
    values = CHAINS[name]
    found = steps("hf", **{OPTIONS.get(key, key): value for key, value in values.items()})
    pairs = [(own, hf_logits(model, ids, logits, values)) for ids, logits, own in found]
    assert far_steps(pairs) <= 0.004, name


def test_all_of_its_chain_makes_the_distributions_of_transformers(profile, model):
    assert_rows_are_those_of_transformers(profile, model, "all", ties=False)
    assert_texts_are_those_of_transformers(model, "usual")


def test_its_chain_makes_the_distributions_of_transformers(profile, model):
    for name in CHAINS:
        for ties in (False, True):
            assert_rows_are_those_of_transformers(profile, model, name, ties=ties)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_transformers(model):
    for name in CHAINS:
        assert_texts_are_those_of_transformers(model, name)
