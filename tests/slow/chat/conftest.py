"""The fixtures of tests/chat."""

from tests.chat.conftest import chat, scene, tokenizer
