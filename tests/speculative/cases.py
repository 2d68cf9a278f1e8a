"""Requests of every kind, for the proof that drafts change no text."""

import json
from dataclasses import replace

from gencli.core.request import Drafting, Stops
from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from processors.testing.examples import EXAMPLES
from tests.engine.harness import Error, ends_of, events_of, ids_of, request

WIDTH = 300  # of the logits, for the ids that the examples name
LETTERS = "allowed=[97,98,99,100,257]"  # few, so that texts repeat themselves and drafts stand
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def fits(params):
    """Texts of the examples that are no one token of the byte vocabulary are refused."""
    return not any(word in str(params) for word in ("284", "283", "' the'", "'cat', -"))


def of_stages():
    """A request for each stage and each of its examples; under letters too, where the stage allows it."""
    for spec in BUILTIN:
        for i, params in enumerate(EXAMPLES[spec.params]):
            if fits(params):
                yield request(
                    "the cat sat on the cat", key=f"{spec.name}{i}", chain=Chain(((spec.name, params),))
                )


def of_edges():
    """What ends or bends a text: stops, ends, limits, bans, grammars, draws."""
    chains = {
        "free": "",
        "letters": LETTERS,
        "greedy": "temperature=0",
        "greedy letters": f"{LETTERS} | temperature=0",
        "penalties": f"{LETTERS} | repetition=1.7 | frequency=0.9 | presence=0.5",
        "ban": f'{LETTERS} | ban=["ab", "cab", "dd"]',
        "mirostat": f"{LETTERS} | temperature=1.4 | mirostat:version=2,tau=1,eta=0.5",
        "mirostat 1": f"{LETTERS} | mirostat:version=1,tau=1,eta=0.5 | skew=-0.5",
        "adaptive": f"{LETTERS} | min_p=0.05 | adaptive_p:target=0.4,decay=0.5",
        "heat": f"{LETTERS} | dynamic_temperature:min=0,max=2 | smoothing=0.1",
        "least": "allowed=[97,98,257] | min_tokens=9 | bias=[[257, 4.0]]",
        "no end": "allowed=[97,98,257] | ignore_eos=true",
        "all": f'{LETTERS} | ban=["ca"] | repetition=1.3 | temperature=1.4 | min_p=0.05 | top_p=0.9',
    }
    for key, chain in chains.items():
        yield request("abcabcdabc", key=key, chain=chain)
    stops = Stops(strings=("ba", "dcd"), ids=(99,))
    yield request("abcabcdabc", key="stop", chain="allowed=[97,98,100]", stops=Stops(strings=("bab", "dd")))
    yield request("abcabcdabc", key="stop id", chain=LETTERS, stops=stops)
    yield request("abcabcdabc", key="include", chain=LETTERS, stops=replace(stops, include=True))
    yield request("abcabcdabc", key="regex", chain=LETTERS, stops=Stops(patterns=("a[bc]d",)))
    yield request("abcabcdabc", key="loop", chain=LETTERS, stops=Stops(loop=3))
    yield request("abcabcdabc", key="short", chain=LETTERS, max_tokens=3)
    yield request("abcabcdabc", key="one", chain=LETTERS, max_tokens=1)
    yield request("abcabcdabc", key="cdf", chain=LETTERS, draw="multinomial")
    yield request("abcabcdabc", key="samples", chain=LETTERS, n=3)
    for whitespace in (0, 8):
        params = GrammarParams(json.dumps(SCHEMA), whitespace=whitespace)
        chain = Chain((("grammar", params), *Chain.parse("frequency=0.5").stages))
        yield request("{}", key=f"schema{whitespace}", chain=chain, max_tokens=60)


def everything():
    """All of them, for a vocabulary of WIDTH ids."""
    return [*of_stages(), *of_edges()]


def drafting(requests, drafter, tokens, *, every=1):
    """The same requests with drafts; of those that are not the `every`th without."""
    wanted, none = Drafting(drafter, tokens), Drafting("none")
    return [replace(one, drafting=none if i % every else wanted) for i, one in enumerate(requests)]


def outcomes(requests, *, runner=None, **options):
    """By request and sample the tokens and how it ended; and how many drafts stood."""
    events = events_of(requests, runner=runner or FakeRunner(WIDTH), **options)
    ids, ends, stood = ids_of(events), {}, 0
    for key, end in ends_of(events).items():
        if isinstance(end, Error):
            ends[key] = (end.type, end.message, end.text)
        else:
            stood += sum(end.drafted.accepted) if end.drafted else 0
            ends[key] = (end.text, end.reason, end.matched, end.offset, end.completion_tokens)
    return {key: (ids.get(key, ()), end) for key, end in ends.items()}, stood


def half_right():
    """The target's own table, but for every other token that was chosen last."""
    runner, other = FakeRunner(WIDTH), FakeRunner(WIDTH, seed=1)
    runner.table = runner.table.clone()
    runner.table[1::2] = other.table[1::2]
    return runner
