"""Model folders with small tokenizers, saved by transformers; compares both ways to load them."""

import json
import shutil
from functools import cache

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gencli.text.fast_tokenizer import FastTokenizer, load_fast
from gencli.text.tokenizer import HFTokenizer
from tests.text.conftest import TEXTS

__all__ = ["CLASSES", "NASTY", "assert_same", "backend", "change", "parts_of", "save"]

NASTY = [
    *TEXTS,
    "",
    " ",
    "  \n\n \t ",
    "<s>a</s> <s> <|end|><|user|>hi<|endoftext|> <tool>x <mask><pad>",
    " <tool>  <tool>\n two words  two  words <|end|>  x",
    "\x00\x01\x1b[31m\x7f\u200b\u200d\ufeff\u202e",
    "I'll don't WE'VE 12345 3.14 ___ ### ,,,",
    "▁under ▁▁ <0x41> <0xF0><0x9F>",
    "ﬁ ½ Å Å ḍ̇",
    "\U0001f600" * 3 + "\U0010ffff" + "\ud7ff\ue000",
    "Hello" * 40,
]
CHATS = [
    [{"role": "user", "content": "hi <s>"}],
    [
        {"role": "system", "content": " <b>é "},
        {"role": "user", "content": "a\n"},
        {"role": "assistant", "content": "☃"},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "☃ <b>"}}]
# For each class that builds its parts itself: the kind of vocabulary, the model type, special tokens.
CLASSES = {
    "LlamaTokenizer": ("pieces", "llama", {"unk_token": "<unk>"}),
    "GemmaTokenizer": ("pieces", "gemma2", {"unk_token": "<unk>", "pad_token": "<pad>"}),
    "Qwen2Tokenizer": ("bytes", "qwen3", {"pad_token": "<|end|>"}),
    "Qwen3_5Tokenizer": ("bytes", "qwen3_5", {"pad_token": "<|end|>"}),
    "GPT2Tokenizer": ("bytes", "gpt2", {}),
    "GPTNeoXTokenizer": ("bytes", "olmo", {}),
}


@cache
def _spec(kind):
    """A small tokenizer as JSON: bytes, pieces (BPE of pieces with byte fallback), unigram, words."""
    trainer = {"vocab_size": 400, "show_progress": False, "special_tokens": ["<unk>", "<s>", "</s>", "<pad>"]}
    if kind == "bytes":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(initial_alphabet=alphabet, **trainer))
    elif kind == "pieces":
        bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        trainer["special_tokens"] += bytes_of
        made.train_from_iterator(TEXTS[:2] * 3, trainers.BpeTrainer(**trainer))
    elif kind == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        made.train_from_iterator(TEXTS * 3, trainers.UnigramTrainer(unk_token="<unk>", **trainer))
    else:
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        made.train_from_iterator(TEXTS * 3, trainers.WordPieceTrainer(**trainer))
    told = json.loads(made.to_str())
    told["added_tokens"] = told["added_tokens"][:4]  # bytes are tokens like others
    return json.dumps(told)


def backend(kind):
    """A small tokenizer with some added tokens."""
    made = tokenizers.Tokenizer.from_str(_spec(kind))
    made.add_special_tokens(["<|end|>", AddedToken("<|user|>", lstrip=True, rstrip=True, special=True)])
    made.add_tokens(
        [AddedToken("<tool>", lstrip=True), AddedToken("two words", rstrip=True, normalized=False)]
    )
    return made


def parts_of(kind):
    """The vocabulary and the merges of a kind of BPE."""
    model = json.loads(_spec(kind))["model"]
    return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}


def with_bos(made, *, eos=False):
    """Add a post-processor with BOS and perhaps EOS."""
    ids = [(token, made.token_to_id(token)) for token in ("<s>", "</s>")]
    single = "<s> $A </s>" if eos else "<s> $A"
    made.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return made


def save(folder, name="TokenizersBackend", kind="bytes", model_type=None, *, bos=False, eos=False, **options):
    """Save a tokenizer with a class of transformers, and nothing else; return the folder."""
    import transformers

    shutil.rmtree(folder, ignore_errors=True)

    options = {"bos_token": "<s>", "eos_token": "</s>", **options}
    if name == "TokenizersBackend":
        made = transformers.PreTrainedTokenizerFast(tokenizer_object=backend(kind), **options)
    else:
        made = getattr(transformers, name)(**parts_of(kind), **options)
        made.add_tokens([AddedToken("<tool>", lstrip=True), AddedToken("<|user|>", special=True)])
    if bos:
        with_bos(made.backend_tokenizer, eos=eos)
    made.save_pretrained(folder)
    if model_type is not None:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def change(path, **values):
    """Set keys of a JSON file, or remove them where the value is ..."""
    told = {**(json.loads(path.read_text()) if path.exists() else {}), **values}
    path.write_text(json.dumps({key: value for key, value in told.items() if value is not ...}))


def assert_same(folder, *, fast=None):
    """Both ways give equal ids, texts, tokens and chats; return the fast tokenizer."""
    from transformers import AutoTokenizer

    ours, theirs = fast or load_fast(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(ours, FastTokenizer), ours
    vocabulary = theirs.get_vocab()
    assert ours.get_vocab() == vocabulary
    for text in (
        *NASTY,
        *(" ".join((token, token + "a", "b" + token)) for token in theirs.get_added_vocab()),
    ):
        for special in (False, True):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == ids, text
            for skip in (False, True):
                want = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
                assert ours.decode(ids, skip_special_tokens=skip) == want
    for token_id in (*range(0, len(vocabulary), 7), *theirs.added_tokens_decoder, len(vocabulary) + 5):
        assert ours.convert_ids_to_tokens(token_id) == theirs.convert_ids_to_tokens(token_id)
    for name in (
        "bos_token_id", "eos_token_id", "all_special_ids", "all_special_tokens", "special_tokens_map",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert _states(ours) == _states(theirs)
    _assert_same_chats(folder, ours, theirs)
    return ours


def _states(tokenizer):
    return {token_id: token.__getstate__() for token_id, token in tokenizer.added_tokens_decoder.items()}


def _assert_same_chats(folder, ours, theirs):
    assert ours.chat_template == theirs.chat_template
    if not theirs.chat_template:
        return
    wrapped = HFTokenizer(ours, str(folder))
    for chat in CHATS:
        for kwargs in ({}, {"tools": TOOLS}, {"mood": "!", "add_generation_prompt": False}):
            want = theirs.apply_chat_template(
                chat, tokenize=False, **{"add_generation_prompt": True, **kwargs}
            )
            assert wrapped.render_chat(chat, **kwargs) == want
