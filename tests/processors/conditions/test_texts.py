"""Tags and texts are found in any tokenization, and as special tokens."""

from processors.pipeline import AfterText, TagWatch, TextSpelling
from processors.testing import ToyVocabulary


class Words:
    """A vocabulary of a few tokens; 0 and 1 are special."""

    token_bytes = (b"", b"", b"<th", b"ink>", b"</", b"think>x", b"y", b"<think></think>z")

    def encode(self, text, *, special=True):
        return {"<think>": [0], "</think>": [1]}.get(text, [6])


def states(tokens, prompt=(), tags=("<think>", "</think>"), vocabulary=None):
    watch = TagWatch(tags, TextSpelling(vocabulary or Words(), tags))
    state, found = watch.first(prompt), []
    for token in (*tokens, 6):
        found.append(state.is_inside)
        state = watch.next(state, token)
    return found


def test_a_tag_is_chosen_in_the_state_before_it():
    assert states([6, 0, 6, 1, 6]) == [False, False, True, True, False, False]
    assert states([2, 3, 6, 4, 5, 6]) == [False, False, True, True, True, False, False]
    assert states([7, 0, 7, 6]) == [False, False, True, False, False]


def test_a_prompt_may_have_begun_the_thinking():
    assert states([6, 1], prompt=[6, 0]) == [True, True, False]
    assert states([6], prompt=[0, 6, 4, 5]) == [False, False]


def test_without_a_start_tag_the_output_begins_inside_once():
    assert states([6, 4, 5, 0, 6], tags=("", "</think>")) == [True, True, True, False, False, False]
    assert states([6], tags=("", "</think>"), prompt=[6, 1]) == [False, False]


def test_behind_a_text_is_what_its_last_token_adds():
    for tokens, rest in [([4, 5], b"x"), ([1], b""), ([6, 7], b"z"), ([4, 5, 6], b"y")]:
        watch = AfterText("</think>", TextSpelling(Words(), ["</think>"]))
        state = watch.first([])
        for token in tokens:
            state = watch.next(state, token)
        assert (state.is_over, state.rest) == (True, rest), tokens


def test_a_prompt_that_ends_with_the_text_is_behind_it():
    watch = AfterText("</think>", TextSpelling(Words(), ["</think>"]))
    for prompt, is_over in [([1], True), ([6, 4, 5], False), ([1, 6], False), ([], False)]:
        assert watch.first(prompt).is_over is is_over, prompt


def test_an_id_that_the_tokenizer_lacks_adds_nothing():
    spelling = TextSpelling(ToyVocabulary(), [])
    assert spelling.of(10**6) == spelling.of(-1) == b""
