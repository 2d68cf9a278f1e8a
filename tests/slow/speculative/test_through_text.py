"""A draft model of another vocabulary: no text changes, what it says alike stands, nothing is read twice."""

from gencli.core.request import Guidance
from gencli.runtime.drafters import bare_drafter, make_drafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.through_text import TextModelDrafter
from gencli.text.tokenizer import ByteTokenizer
from tests.speculative.test_through_text import (
    CHOICE,
    DRAWN,
    PROMPTS,
    asked,
    counted,
    other_ids,
    reciting,
    tiny,
    told,
)
from tests.speculative.vocabularies import random_model, trained


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
