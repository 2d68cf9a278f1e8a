"""Drafts of a model with another vocabulary, through text."""

from functools import lru_cache

import pytest

from gencli.core.request import Drafting, Guidance, Limits, Request
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import bare_drafter, make_drafter
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter, TextModelDrafter
from gencli.speculative.translation import Translation
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from processors.request_values import Verification
from tests.engine.harness import generate
from tests.speculative.cases import outcomes
from tests.speculative.timed import Ticking
from tests.speculative.vocabularies import Reciter, permuted, random_model, trained

CHOICE = ModelChoice("tiny", dtype="float32", max_batch=12, companions=True)
PROMPTS = (
    "Once upon a time Tom lived",
    'One day the fox said: "',
    "In the morning, a girl fou",
    "Ivy was happy when it began to rain. Ivy was",
)
DRAWN = "repetition=1.2 | temperature=0.9 | min_p=0.05 | top_p=0.95"


@lru_cache
def tiny():
    return load(CHOICE)


def asked(prompts=PROMPTS, *, chain="temperature=0", tokens=None, least=0.0, max_tokens=24, **rest):
    """A request for each prompt, with so many drafts at a time; none without a number."""
    drafting = (
        Drafting("", tokens, least, rest.pop("verification", Verification())) if tokens else Drafting("none")
    )
    for i, text in enumerate(prompts):
        ids = tuple(tiny().tokenizer.encode(text)) if isinstance(text, str) else text
        yield Request(
            str(i), ids, Chain.parse(chain), seed=i, limits=Limits(max_tokens), drafting=drafting, **rest
        )


def told(requests, drafter=None, **options):
    """The outcomes on tiny, and how many drafts stood."""
    drafter = AdaptiveDrafter(drafter, clock=Ticking()) if drafter else None
    on = {"runner": tiny().runner, "tokenizer": tiny().tokenizer, "max_batch": 12}
    return outcomes(requests, drafter=drafter, **on, **options)


def counted(requests, drafter):
    """Over all texts: forwards, tokens, first drafts proposed and accepted."""
    drafter = AdaptiveDrafter(drafter, clock=Ticking())
    ends = generate(
        requests, runner=tiny().runner, tokenizer=tiny().tokenizer, drafter=drafter, max_batch=12
    ).values()
    drafted = [end.drafted for end in ends]
    return (
        sum(one.forwards for one in drafted),
        sum(end.completion_tokens for end in ends),
        sum(one.proposed[0] for one in drafted),
        sum(one.accepted[0] for one in drafted),
    )


@lru_cache
def stories():
    """The prompts and what tiny says behind them."""
    found, _ = told(asked())
    return tuple(PROMPTS[int(key)] + end[0] for (key, _), (_, end) in found.items())


def reciting(tokenizer, **options):
    """A draft that says what tiny will say, in other tokens; and its runner."""
    runner = Reciter(tokenizer, stories(), **options)
    names = ("tiny", "reciter")
    return TextModelDrafter(runner, Translation(tiny().tokenizer, tokenizer, names=names)), runner


@pytest.fixture(scope="module")
def other_ids(tmp_path_factory):
    """A model that says what tiny says, through other ids."""
    return permuted(tmp_path_factory.mktemp("models") / "permuted")


class Checked(TextModelDrafter):
    """Looks whether its lanes hold the texts as they are spelled now."""

    def propose(self, asks):
        runs = super().propose(asks)
        for ask in asks:
            held, text = self._lanes[ask.slot].cached.tokens, [*self._transcripts[ask.slot].tokens]
            assert held[: len(text)] == text[: len(held)]
        return runs


def test_a_lane_holds_the_text_as_it_is_spelled_now():
    """Other texts than the draft would write, whose last tokens are spelled anew as they grow."""
    for tokenizer in (trained(300), trained(330, split=False)):
        between = Translation(tiny().tokenizer, tokenizer, names=("tiny", "reciter"))
        told(asked(chain=DRAWN, tokens=2), Checked(Reciter(tokenizer, stories()), between))


def test_what_is_rejected_costs_no_reading_of_what_stands():
    drafter, runner = reciting(ByteTokenizer())
    runner._texts = [text[: len(text) // 2] + b"?" for text in runner._texts]
    found, _ = told(asked(tokens=4), drafter)
    feeds = [feed for feeds in runner.feeds for feed in feeds]
    written = sum(len((PROMPTS[int(key)] + end[0]).encode()) for (key, _), (_, end) in found.items())
    assert sum(len(feed.tokens) for feed in feeds) <= written + sum(feed.num_logits for feed in feeds)


def test_a_long_prompt_is_read_in_chunks_and_once_for_all_samples():
    drafter, runner = reciting(ByteTokenizer(), context=4096)
    prompt = "The little dog ran to the red house. " * 40
    told(asked([prompt], chain="temperature=0.8", tokens=2, n=4, max_tokens=20), drafter)
    sizes = [sum(len(feed.tokens) for feed in feeds) for feeds in runner.feeds]
    assert sizes[:2] == [512, 512]
    assert sum(sizes) < 2.5 * len(prompt)


def test_where_the_draft_has_no_room_it_drafts_no_more():
    expected = told(asked())[0]
    for context in (20, 80):
        found, stood = told(asked(tokens=4), reciting(ByteTokenizer(), context=context)[0])
        assert found == expected, context
        assert (stood > 0) == (context > 26), context


def test_markers_of_a_chat_are_known_by_their_names(other_ids):
    ids = tiny().tokenizer.render_chat([{"role": "user", "content": "Tell me a story about a dog."}])
    prompts = [tuple(tiny().tokenizer.encode(ids, special=False))]
    _, _, proposed, accepted = counted(asked(prompts, tokens=4), bare_drafter(other_ids, tiny(), CHOICE))
    assert accepted == proposed > 0


def check_no_token_changes(drafter, chain, tokens):
    expected, (found, stood) = told(asked(chain=chain))[0], told(asked(chain=chain, tokens=tokens), drafter)
    assert found == expected, (chain, tokens)
    assert stood > 20, (chain, tokens)


def test_what_says_the_same_in_other_ids_is_nearly_always_right_and_changes_no_token(other_ids):
    for tokens in (1, 8):
        drafter = bare_drafter(other_ids, tiny(), CHOICE)
        assert isinstance(drafter, TextModelDrafter)
        forwards, made, proposed, accepted = counted(asked(tokens=tokens), drafter)
        assert accepted > 0.9 * proposed, tokens
        assert forwards < 1.2 * made / (tokens + 1) + len(PROMPTS), tokens
    check_no_token_changes(bare_drafter(other_ids, tiny(), CHOICE), DRAWN, 3)
    assert isinstance(bare_drafter("tiny-draft", tiny(), CHOICE), ModelDrafter)  # the same ids need no text


def test_a_useless_model_changes_no_token_either(tmp_path):
    name = random_model(tmp_path / "random", trained(330, split=False))
    drafter = make_drafter(name, tiny(), CHOICE)
    [notice] = drafter.notices
    assert notice.startswith(f"{name} has another vocabulary than tiny, and drafts through text: token 0 is")
    assert not bare_drafter(name, tiny(), CHOICE).has_trees
    found = told(asked(chain=DRAWN, tokens=3), bare_drafter(name, tiny(), CHOICE))[0]
    assert found == told(asked(chain=DRAWN))[0]


def test_what_says_the_same_in_other_tokens_is_mostly_right():
    for tokenizer, least in ((ByteTokenizer(), 3), (trained(330, split=False), 3.5)):
        drafter, runner = reciting(tokenizer)
        forwards, made, proposed, accepted = counted(asked(tokens=4), drafter)
        assert accepted > 0.9 * proposed, least
        assert made > least * forwards, least
        assert told(asked(tokens=4), reciting(tokenizer)[0])[0] == told(asked())[0], least
        assert len(runner.feeds) < made, least


def test_an_improbable_token_ends_the_draft(other_ids):
    def stood(least):
        drafter = bare_drafter(other_ids, tiny(), CHOICE)
        return told(asked(tokens=4, least=least), drafter)[1]

    assert stood(0.0) > stood(0.6) > stood(1.0)


def test_any_prompt_may_be_drafted_for(other_ids):
    prompts = ("né 日本語 🙂", (0, *"🙂".encode()[:2]), (1999, 6, 1, 0, 3))
    drafter = bare_drafter(other_ids, tiny(), CHOICE)
    found = told(asked(prompts, chain=DRAWN, tokens=4), drafter)[0]
    assert found == told(asked(prompts, chain=DRAWN))[0]


def test_everything_else_goes_beside(other_ids):
    for options in (
        {"chain": "temperature=0.9", "n": 3},
        {"chain": "temperature=0.9", "guidance": Guidance(1.5)},
        {"chain": 'ban=[" the", "ing"] | min_tokens=20 | temperature=0.9'},
    ):
        expected = told(asked(PROMPTS[:2], **options))[0]
        found, stood = told(asked(PROMPTS[:2], **options, tokens=4), bare_drafter(other_ids, tiny(), CHOICE))
        assert found == expected, options
        assert stood > 0, options
