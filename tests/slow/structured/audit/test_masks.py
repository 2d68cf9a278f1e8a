"""What was chosen compiles in the back ends as they are run, and does there what the probes saw."""

import json

from gencli.structured.backend_choice import candidate
from processors.base import Env
from processors.grammar.grammar_backend import load_backend
from processors.testing import ToyVocabulary
from scripts.measure_schemas import BACKENDS, cases, observed

SAMPLE = [case for index, case in enumerate(cases()) if index % 9 == 0]


def accepts(grammar, ids):
    matcher = grammar.matcher()
    return all(map(matcher.accept, ids)) and matcher.is_complete()


def test_the_back_end_of_a_run_does_what_the_probes_saw():
    tokenizer = ToyVocabulary()
    env = Env(tokenizer.vocab_size, tokenizer, tokenizer.eos_ids)

    def ids(value):
        return tokenizer.encode(json.dumps(value, ensure_ascii=False), special=False)

    for name in BACKENDS:
        backend = load_backend(name, env)
        for case in SAMPLE:
            constraint = candidate(case.schema, name).variant.constraint
            grammar = backend.compile(constraint)
            loose = any(accepts(grammar, ids(value)) for value in case.invalid)
            exact = not loose and all(accepts(grammar, ids(value)) for value in case.valid)
            seen = "loose" if loose else "exact" if exact else "tight"
            assert seen == observed(name, json.loads(constraint.text), case), (name, case.name)
