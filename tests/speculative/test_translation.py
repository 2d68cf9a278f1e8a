"""Drafts of a model with another vocabulary, through text."""

from itertools import product

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gencli.errors import ModelError
from gencli.runtime.model_loading import load_tokenizer
from gencli.speculative.translation import Transcript, Translation
from gencli.text.tokenizer import ByteTokenizer, HFTokenizer
from tests.speculative.turned import Turned
from tests.speculative.vocabularies import LINES, spaced, trained

BYTES, TINY = ByteTokenizer(), load_tokenizer("tiny")
STORY = " ".join(LINES) * 3


def translation(target, draft, **options):
    return Translation(target, draft, names=("target", "draft"), **options)


def read(between, tokens):
    transcript = Transcript(between)
    for token in tokens:
        transcript.push(token)
    return transcript


class Counting(ByteTokenizer):
    """Counts the characters that it spells."""

    def __init__(self):
        super().__init__()
        self.spelled = []

    def encode(self, text, *, special=True):
        self.spelled.append(len(text))
        return super().encode(text, special=special)


def test_the_draft_reads_the_text_as_its_tokenizer_writes_it():
    for draft, text in product(
        (TINY, BYTES, trained(300), trained(330, split=False), spaced(300), spaced(300, "never")),
        (STORY, "né 日本語 🙂 " * 30, "日本語のテキスト" * 30, "", " ", "\n\n  a"),
    ):
        for target in (TINY, BYTES):
            found = read(translation(target, draft), target.encode(text, special=False))
            assert [*found.tokens] == draft.encode(text), (draft, text)


def test_only_the_end_of_a_text_is_spelled_anew():
    draft = Counting()
    between = translation(TINY, draft)
    transcript = read(between, TINY.encode(STORY * 4))
    settled = transcript.num_settled
    assert settled > 0.9 * len(transcript.tokens)
    assert sum(draft.spelled) < 3 * len(STORY * 4)
    del draft.spelled[:]
    for token in TINY.encode(STORY, special=False):
        transcript.push(token)
        assert len(transcript.tokens) > settled
    assert max(draft.spelled) < 200


def test_it_depends_on_the_tokens_and_not_on_who_asked_when():
    between, tokens = translation(BYTES, trained(300)), BYTES.encode("été 🙂 " * 40 + STORY)
    asked, copied = Transcript(between), Transcript(between)
    for i, token in enumerate(tokens):
        asked.push(token)
        copied = copied if i % 7 else copied.fork()
        copied.push(token)
        assert len(asked.tokens) <= i + 1
    once = read(between, tokens)
    assert [*asked.tokens] == [*copied.tokens] == [*once.tokens]
    assert asked.num_settled == copied.num_settled == once.num_settled


def test_a_character_that_is_not_complete_is_left_out():
    between = translation(BYTES, Turned())
    smile = "🙂".encode()
    transcript = read(between, [97, *smile[:2]])
    assert [*transcript.tokens] == [255 - 97]
    assert (transcript.anchor, transcript.pending) == ("a", smile[:2])
    drawn = [255 - byte for byte in smile]
    found = [between.proposal("a", smile[:2], drawn[:i]) for i in range(1, 5)]
    assert found == [(), (), (), tuple(smile[2:])]
    assert between.proposal("a", smile[:2], [255 - 98]) is None
    assert [*read(between, [*smile[:2], 97]).tokens] == Turned().encode("\ufffda")


def test_markers_go_by_their_names_and_a_text_begins_as_the_draft_begins_it():
    draft = trained(300)  # <s>, </s>, <|end|>
    hello, there = draft.encode("Hello", special=False), draft.encode(" there", special=False)
    ids = [TINY.bos_id, *TINY.encode("Hello", special=False), 6, 4, *TINY.encode(" there", special=False), 1]
    assert [*read(translation(TINY, draft), ids).tokens] == [*hello, 2, *there, 1]
    begun = translation(TINY, trained(300, begins=True))
    assert [*read(begun, ids).tokens] == [0, *hello, 2, *there, 1]
    assert [*read(begun, ids[1:2]).tokens][:2] == [0, hello[0]]


def test_the_end_of_a_text_is_the_end():
    for end, target_end in ((1, 1), (2, 6), (9, 1), (0, None)):
        between = translation(TINY, trained(300), ends=[9])
        drawn = [*between.draft.encode(" the end", special=False), end]
        expected = TINY.encode(" the end", special=False)
        ends = [] if target_end is None else [target_end]
        assert between.proposal("This is", b"", drawn) == (*expected, *ends), (end, target_end)
        assert between.proposal("This is", b"", [end]) == tuple(ends), (end, target_end)
        broken = between.draft.encode("é", special=False)[:1]
        assert between.proposal("This is", b"", [*broken, end]) == (), (end, target_end)


def test_what_follows_is_spelled_in_sight_of_what_stands():
    text = "Once upon a time there was"
    for target, size in product((TINY, spaced(300), spaced(300, "never")), (11, 14)):
        anchor, rest = text[:size], text[size:].encode()
        found = translation(target, BYTES).proposal(anchor, b"", list(rest))
        assert b"".join(target.token_bytes[token] for token in found) == rest, (target, anchor)
        assert [*found[-2:]] == target.encode(text, special=False)[-2:], (target, anchor)


def test_a_tokenizer_that_does_not_spell_texts_is_refused_by_name():
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "cat": 2, "</s>": 3}, unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.decoder = decoders.Fuse()
    words = HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"), "words")
    for pair, name in (((TINY, words), "draft"), ((words, TINY), "target")):
        with pytest.raises(
            ModelError, match=f"draft cannot draft through text: the tokenizer of {name} makes"
        ):
            translation(*pair)
