"""A given output has the log-probabilities that it had when it was generated, whatever the chain."""

from gencli.core.request import Guidance
from tests.engine.harness import request
from tests.engine.test_given import GRAMMAR, again, bans
from tests.engine.test_logprobs import assert_close, tokens_of

CHAINS = {
    "none": "",
    "penalties": "repetition=1.4 | frequency=0.5 | temperature=1.5",
    "truncation": "temperature=0.8 | top_k=20 | min_p=0.02",
    "bans": 'ban=["ab"] | bias=[[101,5.0]] | min_tokens=20',
    "grammar": GRAMMAR,
    "mirostat": "temperature=1.5 | mirostat:version=2,tau=3,eta=0.5",
    "adaptive": "min_p=0.01 | adaptive_p:target=0.3,decay=0.5",
}


def test_a_generated_text_has_its_numbers_again():
    cold = Guidance(2.0, tuple(b"cold"))
    for name, guidance in [*((name, Guidance()) for name in CHAINS), ("mirostat", cold), ("grammar", cold)]:
        wanted = request("Hello", chain=CHAINS[name], guidance=guidance, logprobs=3, max_tokens=40)
        ((ids, entries),) = tokens_of([wanted]).values()
        assert len(ids) > 1, (guidance, name)
        assert_close(again(wanted, ids), entries)
        assert_close(again(wanted, ids, step_tokens=5), entries)
