"""Grammars beside other stages, conditions of stages, and documents at the limit of tokens."""

import json
from dataclasses import replace

import pytest

from gencli.core.events import Error
from gencli.core.request import Beams, Stops
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import Drafter
from processors.chain import Chain
from processors.chooser import Chooser
from processors.errors import ChainError
from processors.request_values import Verification
from processors.stages.grammar_stage import GrammarParams
from processors.standalone import sample
from tests.engine.harness import Scripted, engine, generate, request, texts

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


TABLE = FakeRunner().table
LETTERS = "allowed=[97,98,99,100,101,102,103]"  # a to g, so that tags come often


def conditional(base, entries, when):
    """The chain of both: an entry that changes a stage of the base stands behind it."""
    stages = dict.fromkeys(Chain.parse(base).stages)
    stages |= dict.fromkeys(Chain.parse(entries.replace("{}", json.dumps(when))).stages)
    return Chain.ordered([*Chain.parse(LETTERS).stages, *stages])


def test_greedy_places_verify_drafts_exactly():
    for policy in ("match", "rejection"):
        made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"from": 0, "to": 40})
        one = request("abc", chain=made, max_tokens=30)
        greedy = texts([replace(one, chain=Chain.parse(LETTERS + " | temperature=0"))])
        drafting = replace(one.drafting, verification=Verification(policy))
        drafter = Scripted({one.prompt_ids: tuple(greedy[one.id, 0].encode())})
        assert texts([replace(one, drafting=drafting)], drafter=drafter) == greedy, policy
        assert drafter.proposed > 10, policy


def test_samples_beams_and_slots_follow_their_own_texts():
    made = conditional("temperature=1.5", "temperature:temperature=0.1,when={}", {"after": "a"})
    one = request("abc", chain=made, max_tokens=30)
    many = texts([replace(one, n=4)])
    assert len(set(many.values())) == 4
    assert texts([one])[one.id, 0] == many[one.id, 0]
    some = [request("abc", key=key, chain=made, max_tokens=20) for key in range(6)]
    some[2] = request("abc", key=2, chain="temperature=1.5", max_tokens=20)
    together = texts(some, max_batch=2)  # each slot is used again
    assert together == {key: text for one in some for key, text in texts([one]).items()}
    banned = Chain.parse(LETTERS + ' | suppress:ids=[98],when={"after": "a"}')
    found = texts([request("abc", chain=banned, max_tokens=20, n=4, beams=Beams(4))])
    parts = [text.partition("a") for text in found.values()]
    assert len(parts) == 4
    assert any(tag for _, tag, _ in parts)
    assert not any("b" in rest for _, _, rest in parts)


def test_a_stop_string_beside_a_condition_ends_where_the_text_has_it():
    made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"after": "a"})
    one = request("abc", chain=made, max_tokens=40)
    whole = texts([one])[one.id, 0]
    cut = texts([replace(one, stops=Stops(strings=(whole[18:21],)))])[one.id, 0]
    assert whole.startswith(cut)
    assert len(cut) <= 18


def test_rows_without_conditions_stay_fused_beside_others(monkeypatch):
    fused = []
    split = Chooser._split

    def seen(self, program, rows):
        plan = split(self, program, rows)
        fused.append([group.tail is not None for group in plan[1]])
        return plan

    monkeypatch.setattr(Chooser, "_split", seen)
    made = conditional("temperature=1.5", "temperature:temperature=0,when={}", {"from": 3, "to": 6})
    plain = request("abc", key="plain", chain="temperature=0.8 | top_p=0.9", max_tokens=10)
    together = texts([plain, request("abc", key="mixed", chain=made, max_tokens=10)])
    assert [True, False] in fused
    assert together["plain", 0] == texts([plain])["plain", 0]


def test_a_condition_that_a_stage_cannot_have_is_refused_at_once():
    with pytest.raises(ChainError, match="min_tokens takes no condition .when.: it is a promise"):
        engine().submit(request("a", chain='min_tokens:count=3,when={"from":2}'))
    with pytest.raises(ChainError, match="there is no tokenizer"):
        sample(TABLE[0], 'top_k:k=1,when={"after":"a"}')
    positions = sample(TABLE[5], 'top_k:k=1,when={"from":2}', output=[1, 2])  # which need no tokenizer
    assert int(positions) == int(TABLE[5].argmax())
