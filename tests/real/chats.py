"""Conversations with a small chat model, from one line to 1,800 tokens."""

from pathlib import Path

STORY = (Path(__file__).parent / "english.txt").read_text(encoding="utf-8")


def user(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(turns)]


CHATS = [
    user("What is the capital of France?"),
    user("Tell me about Paris."),
    user("Write a haiku about rain."),
    user("Give me a list of three fruits."),
    user("My name is Ada.", "Hello Ada! How can I help you?", "What is my name?"),
    user("Translate to German: Good morning, my friends."),
    user(f"Summarise this story in one sentence.\n\n{STORY}"),
    user(
        f"Read this.\n\n{STORY}", "I have read it.", f"And this.\n\n{STORY}", "I have read that, too.",
        f"And a last time.\n\n{STORY[:1500]}\n\nWho wrote the letter?",
    ),
    user("What is 12 times 7?"),
    user("Explain what a prime number is to a child."),
    user("Write a short poem about the sea."),
    user("Name two planets.", "Mars and Venus.", "Name two more."),
    user("Why is the sky blue?"),
    user("Write a Python function that adds two numbers."),
    user("Who was Isaac Newton?"),
    user("List the days of the week."),
]  # fmt: skip
