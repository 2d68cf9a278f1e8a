"""Outputs that begin with given tokens, and prefixes that requests share."""

from dataclasses import replace

from gencli.core.request import Guidance
from processors.chain import Chain
from processors.stages.masks import BanParams
from tests.engine.harness import request
from tests.engine.test_sequence import GRAMMAR, LETTERS, told

REWIND = Chain((*Chain.parse(LETTERS).stages, ("ban", BanParams(("ab", "ec", "dad"), rewind=True))))
CHAINS = {
    "none": "",
    "penalties": "repetition=1.4 | frequency=0.5 | temperature=1.5",
    "dry": f"{LETTERS} | dry:multiplier=2,base=2,allowed=1 | temperature=0.7",
    "mirostat": "temperature=1.5 | mirostat:version=2,tau=3,eta=0.5",
    "adaptive": "min_p=0.01 | adaptive_p:target=0.3,decay=0.5",
    "xtc": "temperature=1.2 | xtc:threshold=0.01,probability=0.5",
    "bans": 'ban=["ab"] | min_tokens=12',
    "rewind": REWIND,
    "grammar": GRAMMAR,
    "greedy": "temperature=0",
    "conditions": f'{LETTERS} | top_k:k=1,when={{"after":"b"}} | temperature:temperature=3,when={{"to":4}}',
    "forced": f'{LETTERS} | force:text="cab",at="tokens",after_tokens=5',
}


def again(one, ids, **options):
    """The output and its text, with these ids at its beginning."""
    found, end = told(replace(one, prefix=ids), **options)
    return found, end.text, getattr(end, "reason", "")


def check(name, guidance):
    one = request("Hello", chain=CHAINS[name], guidance=guidance, max_tokens=20)
    ids, end = told(one)
    assert len(ids) > 3, (name, guidance)
    for size in range(1, len(ids) + 1):
        assert again(one, ids[:size]) == (ids, end.text, end.reason), (name, guidance)


def test_a_text_goes_on_from_every_part_of_itself():
    for name in CHAINS:
        check(name, Guidance())
    for name in ("rewind", "grammar"):
        check(name, Guidance(2.0, tuple(b"cold")))
