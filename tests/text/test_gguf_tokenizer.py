"""The tokenizer of a GGUF file gives the ids and the texts of the tokenizer it was converted from."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import generate_merges

from gencli.errors import ModelError
from gencli.models.files.gguf_header import read_gguf_head
from gencli.models.files.gguf_metadata import read_vocabulary
from gencli.models.files.model_card import declared_template
from gencli.text.gguf_tokenizer import PRE_TOKENIZERS
from gencli.text.tokenizer import HFTokenizer
from tests.helpers.gguf_files import add_byte_level, add_sentencepiece
from tests.models.cases import case
from tests.models.files.test_gguf_header import finish
from tests.text.conftest import TEXTS

ALPHABET = [
    *"aeist HTIW'09.,;:-_\n\r\t",
    *("  ", "'s", "'LL", "ß", "é", "e\u0301", "你", "👍🏽", "\u00a0", "▁", "the "),
]
BEGIN, END, USER, TOOL = "<|begin|>", "<|im_end|>", "<|user|>", "<tool>"


def samples(count: int, *more: str) -> list[str]:
    draw = random.Random(count)
    pool = [*ALPHABET, *more]
    return [*TEXTS, *("".join(draw.choices(pool, k=draw.randrange(1, 30))) for _ in range(count))]


def written(path: Path, add: Callable[[Any], None], arch: str = "llama") -> HFTokenizer:
    """The tokenizer of a file with the metadata that `add` writes."""
    writer = gguf.GGUFWriter(path, arch)
    add(writer)
    finish(writer)
    return HFTokenizer.load(path)


def assert_same(found: HFTokenizer, original: Tokenizer, texts: list[str]) -> None:
    for text in texts:
        ids = original.encode(text, add_special_tokens=False).ids
        assert found.encode(text, special=False) == ids, text
        assert found.decode(ids, skip_special=False) == original.decode(ids, skip_special_tokens=False)


def byte_level(pre: str) -> Tokenizer:
    """A small byte-level BPE, split as `pre` says."""
    tokenizer = Tokenizer(models.BPE())
    PRE_TOKENIZERS[pre].give_to(tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([*TEXTS, *samples(50)], trainer)
    tokenizer.add_special_tokens([AddedToken(USER, normalized=False)])
    tokenizer.add_tokens([AddedToken(TOOL, normalized=False)])
    return tokenizer


def test_built_byte_level_tokenizers_are_the_same(tmp_path: Path) -> None:
    for pre, begins in [
        ("llama-bpe", True),
        ("tekken", True),
        ("smollm", False),
        ("olmo", False),
        ("gpt-4o", False),
    ]:
        with case(pre, begins):
            original = byte_level(pre)
            found = written(
                tmp_path / "model.gguf",
                partial(add_byte_level, tokenizer=original, pre=pre, count=700, bos=0, eos=1),
            )
            assert_same(found, original, samples(100, BEGIN, END, USER, TOOL))
            ids = original.encode("Hello", add_special_tokens=False).ids
            assert found.encode("Hello") == ([0, *ids] if begins else ids)
            assert (found.bos_id, found.eos_ids, found.vocab_size) == (0, (1,), original.get_vocab_size())
            assert found.special_ids == {0, 1, original.token_to_id(USER)}


def pieces() -> list[tuple[str, float, int]]:
    """The pieces of a SentencePiece vocabulary with bytes, as its trainer would rank them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, limit_alphabet=60)
    tokenizer.train_from_iterator([f"▁{text}" for text in [*TEXTS[:2], *samples(40)[len(TEXTS) :]]], trainer)
    ranked = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    learned = [text for text, _ in ranked if len(text) > 1]
    letters = [text for text, _ in ranked if len(text) == 1]
    return [
        *[("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)],
        *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
        *((text, -float(rank), 1) for rank, text in enumerate([*learned, *letters])),
        ("<|end|>", -1000.0, 3),
        ("two words", -1000.0, 4),
        ("[PAD9]", -1000.0, 5),
    ]


@pytest.mark.parametrize("space", [True, False], ids=["llama", "gemma"])
def test_sentencepiece_merges_by_score(tmp_path: Path, space: bool) -> None:
    known = pieces()
    vocabulary = {text: number for number, (text, _, kind) in enumerate(known) if kind != 5}
    scores = {text: score for text, score, kind in known if kind == 1}
    model = models.BPE(
        vocabulary,
        generate_merges({text: vocabulary[text] for text in scores}, scores),
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    original = Tokenizer(model)
    first = [normalizers.Prepend("▁")] if space else []
    original.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if space else []
    original.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    special = ["<unk>", "<s>", "</s>", "<|end|>"]
    original.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    original.add_tokens([AddedToken("two words", normalized=False)])
    found = written(tmp_path / "model.gguf", lambda writer: add_sentencepiece(writer, known, space=space))
    assert_same(found, original, samples(200, "</s>", "<|end|>", "two words"))
    plain = original.encode("Hello", add_special_tokens=False).ids
    assert found.encode("Hello") == [1, *plain]
    assert (found.bos_id, found.eos_ids) == (1, (2,))
    assert read_vocabulary(read_gguf_head(tmp_path / "model.gguf")).ends == [2, vocabulary["<|end|>"]]


def test_scores_without_an_order_are_refused(tmp_path: Path) -> None:
    equal = [(text, -1000.0, kind) for text, _, kind in pieces()]
    with pytest.raises(ModelError, match="scores are all equal, so the order of merges is not known"):
        written(tmp_path / "model.gguf", lambda writer: add_sentencepiece(writer, equal))


def test_phi3_takes_the_spaces_behind_its_special_tokens(tmp_path: Path) -> None:
    found = written(tmp_path / "model.gguf", lambda writer: add_sentencepiece(writer, pieces()), "phi3")
    assert found.encode("<|end|>\n", special=False) == found.encode("<|end|>", special=False)
    assert found.encode("<s>\n", special=False) != found.encode("<s>", special=False)


def test_the_file_says_what_goes_around_a_text_and_how_a_conversation_looks(tmp_path: Path) -> None:
    original = byte_level("qwen2")

    def add(writer: Any) -> None:
        add_byte_level(writer, original, "qwen2", bos=0, eos=1, padding=1)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        writer.add_chat_template("{{ bos_token }}{% for one in messages %}{{ one.content }}{% endfor %}")

    found = written(tmp_path / "model.gguf", add)
    ids = original.encode("Hello", add_special_tokens=False).ids
    assert found.encode("Hello") == [0, *ids, 1]
    assert found.render_chat([{"role": "user", "content": "Hello"}]) == f"{BEGIN}Hello"


def test_a_conversation_with_tools_has_the_template_of_its_name(tmp_path: Path) -> None:
    original, path = byte_level("qwen2"), tmp_path / "model.gguf"
    body = "{% for one in messages %}{{ one.content }}{% endfor %}"

    def add(writer: Any) -> None:
        add_byte_level(writer, original, "qwen2", bos=0, eos=1, padding=1)
        for_tools = f"{{{{ tools | length }}}} tools: {body}"
        named = {"default": body, "tool_use": for_tools}
        writer.add_chat_template([{"name": name, "template": text} for name, text in named.items()])

    found, turn = written(path, add), [{"role": "user", "content": "Hello"}]
    assert found.render_chat(turn) == "Hello"
    assert found.render_chat(turn, tools=[{}]) == "1 tools: Hello"
    assert (declared_template(str(path))[0] or "").endswith(f"tools: {body}")


def test_a_file_that_does_not_say_how_texts_are_split_is_refused_with_a_way_out(tmp_path: Path) -> None:
    original = byte_level("qwen2")
    for pre, words in [(None, "pre is missing"), ("new", "is 'new', which gencli does not know")]:
        with case(pre), pytest.raises(ModelError, match=words) as caught:
            written(
                tmp_path / "model.gguf", partial(add_byte_level, tokenizer=original, pre=pre, bos=0, eos=1)
            )
        assert "folder" in caught.value.hint
