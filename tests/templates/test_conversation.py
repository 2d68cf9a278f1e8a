"""A conversation gets the system message that is given, unless it has its own."""

import pytest

from gencli.errors import ModelError
from gencli.templates.chat_templates import has_system, render_conversation, with_system
from gencli.text.tokenizer import ByteTokenizer

TURN = {"role": "user", "content": "hi"}


def test_a_system_message_of_its_own_stays():
    for role in ["system", "developer"]:
        messages = [{"role": role, "content": "Mine."}, TURN]
        assert has_system(messages), role
        assert with_system(messages, "Other.") == tuple(messages), role


def test_a_system_message_comes_first():
    for messages in [[], [TURN]]:
        assert not has_system(messages), messages
        kind = {"role": "system", "content": "Be kind."}
        assert with_system(messages, "Be kind.") == (kind, *messages), messages
        assert with_system(messages, None) == tuple(messages), messages

    text = render_conversation(ByteTokenizer(), [TURN], system="Be kind.")
    assert text == "system: Be kind.\nuser: hi\nassistant:"


def test_an_answer_may_go_on_with_the_last_message():
    for content in ["The answer ", "", "END", " a\n\n"]:
        messages = [TURN, {"role": "assistant", "content": content}]
        text = render_conversation(ByteTokenizer(), messages, is_continued=True)
        assert text == f"user: hi\nassistant: {content}", content

    class Deaf(ByteTokenizer):
        def render_chat(self, messages, **kwargs):
            return "hello"

    with pytest.raises(ModelError, match="does not write the last message"):
        render_conversation(Deaf(), [TURN], is_continued=True)
