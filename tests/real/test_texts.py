"""Texts, tokens and prompts of real models are those of transformers, from a GGUF file and from a folder."""

import os

import pytest
import torch

from gencli import LLM
from tests.real.chats import CHATS, STORY
from tests.real.models import GEMMA, SMOL, folder, gguf

NUM_CHATS = len(CHATS) if os.environ.get("FULL") else 8
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def reference():
    import transformers as hf

    path = folder(SMOL)
    return hf.AutoModelForCausalLM.from_pretrained(path, dtype="float32").eval()


@pytest.fixture(scope="module")
def tokenizer():
    import transformers as hf

    return hf.AutoTokenizer.from_pretrained(folder(SMOL))


def sides():
    yield "file", {"model": str(gguf(SMOL)), "dtype": "float32"}
    yield "folder", {"model": str(folder(SMOL)), "dtype": "float32"}
    yield "transformers", {"model": str(folder(SMOL)), "dtype": "float32", "backend": "transformers"}


def test_greedy_answers_are_those_of_transformers(reference, tokenizer):
    for side, options in sides():
        llm = LLM(**options)
        outs = llm.chat(CHATS[:NUM_CHATS], temperature=0, max_tokens=NUM_TOKENS, logprobs=0)
        for chat, out in zip(CHATS, outs, strict=False):
            prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
            answer = [entry.chosen.id for entry in out.samples[0].logprobs]
            with torch.inference_mode():
                logits = reference(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
            assert logits.argmax(-1).tolist() == answer, (side, chat[-1]["content"][-60:])
        longest = max(out.samples[0].prompt_tokens for out in outs)
        assert longest > 1500, longest


def test_texts_have_the_tokens_of_transformers(tokenizer):
    texts = [STORY, *STORY.split("\n\n"), *STORY.split(". "), "  two  spaces\n\n\tand tabs", "1234567 x_y=z;",
             "naïve café — “quoted”", "日本語 和 한국어", "🙂👩‍👩‍👧", "<|im_start|>user"]  # fmt: skip
    for side, options in sides():
        ours = LLM(**options).tokenizer
        for text in texts:
            assert ours.encode(text, special=False) == tokenizer.encode(text, add_special_tokens=False), (
                side,
                text,
            )
    gemma = LLM(model=str(gguf(GEMMA)), dtype="float32").tokenizer
    import transformers as hf

    theirs = hf.AutoTokenizer.from_pretrained(folder(GEMMA))
    for text in texts[:-1]:
        assert gemma.encode(text) == theirs.encode(text), text


def test_conversations_have_the_prompts_of_transformers(tokenizer):
    for side, options in sides():
        ours = LLM(**options).tokenizer
        for chat in CHATS:
            want = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            assert ours.render_chat(chat) == want, side
