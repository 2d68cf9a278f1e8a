"""A grammar in the loop: its end ends the text, and whatever stands beside it keeps it whole."""

import json
from dataclasses import replace

from gencli.core.request import Stops
from gencli.speculative.drafter import Drafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import Error, Scripted, generate, request

WORDS = ("red", "green", "greenish", "blue and white")


def choice(*texts, after=""):
    return GrammarParams(json.dumps(texts), kind="choice", backend="trie", after=after)


def constrained(*texts, key="k", seed=0, after="", chain="", **rest):
    one = request("pick", key=key, seed=seed, chain=chain, **rest)
    stages = (("grammar", choice(*(texts or WORDS), after=after)), *one.chain.stages)
    return replace(one, chain=Chain(stages))


def end_of(one, **options):
    return generate([one], **options)[one.id, 0]


class Stubborn(Drafter):
    """Proposes the same text whatever was written."""

    def __init__(self, draft):
        self.draft = tuple(draft)

    def propose(self, asks):
        return [self.draft[: ask.most] for ask in asks]


def test_drafts_change_nothing_but_the_number_of_steps():
    one = constrained("blue and white", "blue and black", jump="off")
    plain = end_of(one)
    drafter = Scripted({one.prompt_ids: tuple(plain.text.encode())})
    drafted = end_of(one, drafter=drafter)
    assert (drafted.text, drafted.reason, drafted.document) == (plain.text, plain.reason, plain.document)
    assert drafter.proposed > 4
    for draft in (b"blue", b"greenish!", b"red\x00", b"gr\xff\xff"):  # most are forbidden
        one = constrained(seed=draft[0])
        assert end_of(one, drafter=Stubborn(draft)).text == end_of(one).text, draft


def test_a_text_does_not_end_before_its_document():
    for stops in (Stops(), Stops(ids=tuple(range(32, 127)))):
        end = end_of(constrained("yes", after="never this", max_tokens=9, stops=stops))
        assert (end.reason, end.document) == ("length", "free"), stops


def test_a_grammar_that_another_stage_forbids_fails_by_name():
    end = end_of(constrained("red", chain="suppress=[114]"))
    assert isinstance(end, Error)
    assert (end.type, "suppress" in end.message or "grammar" in end.message) == ("EmptySupport", True)
