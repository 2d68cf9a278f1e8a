"""A chat without a terminal or a model."""

import pytest

from gencli.chat.chat_state import open_chat
from gencli.chat.slash_commands import CommandContext
from gencli.errors import UsageError
from tests.config.test_job import MarkedTokenizer


@pytest.fixture
def tokenizer():
    return MarkedTokenizer()


@pytest.fixture
def scene(tokenizer):
    def explain(chat, position):
        raise UsageError("There is no answer yet.")

    return CommandContext(tokenizer, 1024, lambda chat: "the chain", explain)


@pytest.fixture
def chat():
    """A chat of two answered turns."""
    chat = open_chat({"seed": "7", "top_p": "0.9"})
    conversation = chat.conversation
    for said, answer in (("Hi", "Hello."), ("Who?", "Me.")):
        conversation = conversation.asked(said).answered(answer, "eos")
    return chat.with_conversation(conversation)
