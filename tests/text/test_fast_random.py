"""Whatever the files say, a tokenizer is the same without transformers, or it is left to transformers."""

import json
import random

from gencli.text.fast_tokenizer import FastTokenizer, load_fast
from tests.text.fast_folders import CLASSES, assert_same, change, save

TYPES = [None, "llama", "qwen2", "qwen3", "gemma2", "gpt2", "olmo", "olmo2", "granite", "phi3", "mistral"]


DECLARED = ["PreTrainedTokenizerFast", "TokenizersBackend", *CLASSES, *(f"{name}Fast" for name in CLASSES)]


TOKENS = [None, ..., "<s>", "<|end|>", "<tool>", "<new>", " <odd> "]


NAMED = ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token", "image_token"]


LISTS = [[], None, ["<tool>"], ["<one>", "<two>", "<s>"]]


JUNK = [
    None, True, -1, 2**70, 1.5, "", "x", "\x00", [], {}, [[]], {"a": {"b": []}}, ["<s>", 3],
    {"type": "BPE"},
]  # fmt: skip


def token(draw, content):
    flags = ("lstrip", "rstrip", "normalized", "single_word", "special")
    return {"content": content, **{flag: draw.random() < 0.4 for flag in flags}}


def some_folder(draw, folder):
    """A saved tokenizer of a random class and family."""
    name = draw.choice(["TokenizersBackend", *CLASSES])
    kind, model_type, tokens = CLASSES.get(name, (draw.choice(["bytes", "pieces", "unigram"]), None, {}))
    model_type = draw.choice(TYPES) if draw.random() < 0.5 else model_type
    return save(folder, name, kind, model_type, bos=draw.random() < 0.4, eos=draw.random() < 0.4, **tokens)


def some_values(draw, folder):
    """Random values for tokenizer_config.json."""
    possible = {
        **dict.fromkeys(NAMED, TOKENS),
        "tokenizer_class": DECLARED,
        "extra_special_tokens": [*LISTS, {"boi_token": "<boi>", "odd": "<|end|>"}],
        "additional_special_tokens": LISTS,
        "add_prefix_space": [True, False],
        "split_special_tokens": [True, False],
        "legacy": [True, False, None],
        "add_bos_token": [True, False],
        "cls_token": [{"__type": "AddedToken", **token(draw, "<tool>")}],
    }
    values = {key: draw.choice(choices) for key, choices in possible.items() if draw.random() < 0.15}
    if draw.random() < 0.3:
        added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        told = {str(one["id"]): {key: one[key] for key in one if key != "id"} for one in added}
        for key in [key for key in told if draw.random() < 0.2]:
            told[key] = token(draw, told[key]["content"])
        values["added_tokens_decoder"] = told
    return values


def loaded_without_transformers(seeds, folder):
    """How many random configurations are loaded without transformers; they are the same as with it."""
    count = 0
    for seed in seeds:
        draw, own = random.Random(seed), folder / str(seed)
        some_folder(draw, own)
        change(own / "tokenizer_config.json", **some_values(draw, own))
        if isinstance(fast := load_fast(own), FastTokenizer):
            assert_same(own, fast=fast)
            count += 1
    return count


def test_a_random_configuration(tmp_path):
    assert loaded_without_transformers(range(10), tmp_path) >= 5


def load_damaged(seeds, folder):
    for seed in seeds:
        draw, own = random.Random(seed), folder / str(seed)
        some_folder(draw, own)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            told = json.loads((own / name).read_text())
            for _ in range(draw.randrange(3)):
                place = told
                while isinstance(place, dict) and place:
                    key = draw.choice(list(place))
                    if draw.random() < 0.5 or not isinstance(place[key], dict):
                        place[key] = draw.choice(JUNK)
                        break
                    place = place[key]
            (own / name).write_text(json.dumps(told))
        assert isinstance(load_fast(own), FastTokenizer | str), seed


def test_random_damage_is_never_an_error_of_its_own(tmp_path):
    load_damaged(range(10), tmp_path)
