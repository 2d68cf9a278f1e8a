"""A conversation gets the system message that is given, unless it has its own."""

import pytest

from gencli.errors import ModelError
from gencli.templates.conversation import has_system, render_conversation, with_system
from gencli.text.tokenizer import ByteTokenizer

TURN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_of_its_own_stays(role):
    messages = [{"role": role, "content": "Mine."}, TURN]
    assert has_system(messages)
    assert with_system(messages, "Other.") == tuple(messages)


@pytest.mark.parametrize("messages", [[], [TURN]], ids=["empty", "a turn"])
def test_a_system_message_comes_first(messages):
    assert not has_system(messages)
    assert with_system(messages, "Be kind.") == ({"role": "system", "content": "Be kind."}, *messages)
    assert with_system(messages, None) == tuple(messages)


def test_the_template_gets_both():
    text = render_conversation(ByteTokenizer(), [TURN], system="Be kind.")
    assert text == "system: Be kind.\nuser: hi\nassistant:"


@pytest.mark.parametrize("content", ["The answer ", "", "END", " a\n\n"])
def test_an_answer_may_go_on_with_the_last_message(content):
    messages = [TURN, {"role": "assistant", "content": content}]
    text = render_conversation(ByteTokenizer(), messages, is_continued=True)
    assert text == f"user: hi\nassistant: {content}"


def test_a_template_that_leaves_the_last_message_out_cannot_go_on():
    class Deaf(ByteTokenizer):
        def render_chat(self, messages, **kwargs):
            return "hello"

    with pytest.raises(ModelError, match="does not write the last message"):
        render_conversation(Deaf(), [TURN], is_continued=True)
