"""With drafts and without, every stage gives the same text; only the number of steps differs."""

from dataclasses import replace

from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Scripted, request
from tests.engine.test_drafts import fits, generated


def check(name, params):
    one = replace(request("the cat sat on the", max_tokens=40, jump="off"), chain=Chain(((name, params),)))
    text, ids, passes = generated(one)
    drafted_text, drafted_ids, drafted_passes = generated(one, Scripted({one.prompt_ids: ids}))
    assert (drafted_text, drafted_ids) == (text, ids), (name, params)
    if len(ids) > 8:
        assert drafted_passes < passes, (name, params)


def test_text_with_drafts_is_text_without():
    for spec in BUILTIN:
        for params in filter(fits, EXAMPLES[spec.params][:1]):
            check(spec.name, params)
