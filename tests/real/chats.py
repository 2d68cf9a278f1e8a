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
    user("How do I boil an egg?"),
    user("Give me three synonyms of 'happy'.", "Glad, joyful, cheerful.", "And three antonyms?"),
    user("Write a limerick about a cat who liked to code."),
    user("What does HTTP 404 mean?"),
    user("Convert 10 kilometres to miles."),
    user("Qual é a capital de Portugal?"),
    user("日本の首都はどこですか。"),
    user("Соблюдай порядок: один, два, три, ..."),
    user("Was ist ein Primzahlzwilling? Antworte in einem Satz."),
    user("😀😃😄 — what do these three have in common?"),
    user("Answer with JSON only: a person with a name and an age."),
    user("```python\ndef f(x):\n    return x * 2\n```\nWhat does f(21) return?"),
    user("Sort these numbers: 9, 3, 27, 1, 14."),
    user("Fix the spelling: 'I recieved teh mesage yesturday.'"),
    user("Is 91 prime? Think step by step."),
    user("  Two  spaces\tand a tab\n\n\nand three line breaks. What did I write?"),
    user("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    user("?"),
    user(
        "You are a pirate. Say hello.", "Arr, ahoy there!", "Where is your ship?", "She be in the bay.",
        "What is her name?",
    ),
    user("Continue: 1, 1, 2, 3, 5, 8,"),
    user("Write an e-mail to my landlord about a broken window. Keep it under 60 words."),
    user(f"How many paragraphs does this text have?\n\n{STORY[:800]}"),
    [{"role": "system", "content": "Answer in one word."}, *user("What colour is grass?")],
    [{"role": "system", "content": "You are a translator into French. Translate what you get."},
     *user("The cat sleeps.", "Le chat dort.", "The dog runs in the garden.")],
]  # fmt: skip
