"""Build the tokenizer that a GGUF file describes: byte-level BPE with the pre-tokenizers that llama.cpp's
converter names, or SentencePiece with scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from gencli.errors import GencliError, ModelError, is_panic
from gencli.models.files.gguf_header import GgufHead, read_gguf_head
from gencli.models.files.gguf_metadata import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    GgufVocabulary,
    read_vocabulary,
)
from gencli.text.fast_tokenizer import FastTokenizer

_PREFIX = "tokenizer.ggml."
_ANEW = "Use the folder that the file was made from, or convert that with a newer version of llama.cpp."
_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
# Special tokens of Phi-3 that leave spaces behind them in place; all others take them.
_PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


def load_gguf_tokenizer(path: Path) -> FastTokenizer:
    """Return the tokenizer of a file. Raises ModelError for a kind that gencli does not know."""
    head = read_gguf_head(path)
    vocabulary = read_vocabulary(head)
    try:
        return _load(head, vocabulary)
    except GencliError:
        raise
    except BaseException as error:  # bare Exception of the back end, and its panics
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelError(f"{path}: its tokenizer cannot be built: {error}.") from None


def _load(head: GgufHead, vocabulary: GgufVocabulary) -> FastTokenizer:
    model = head.text(f"{_PREFIX}model")
    pairs = enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    ids = {
        text: index for index, (text, kind) in pairs if kind != UNUSED
    }  # those have a text, but are no tokens
    if model == "gpt2":
        tokenizer, adds_bos = _byte_level(head, ids)
    elif model == "llama":
        tokenizer, adds_bos = _sentencepiece(head, vocabulary, ids), True
    else:
        fault = "is missing" if model is None else f"is {model[:60]!r}"
        raise head.wrong(f"{_PREFIX}model", f"{fault}; gencli knows gpt2 and llama", hint=_ANEW)
    takes_spaces = model == "llama" and head.text("general.architecture") == "phi3"
    added = list[AddedToken]()  # tokens that are found in a text before it is split
    for text, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True):
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            rstrip = takes_spaces and text not in _PHI3_PLAIN
            added.append(AddedToken(text, special=kind != USER_DEFINED, normalized=False, rstrip=rstrip))
    tokenizer.add_tokens(added)
    asked = head.flag(f"{_PREFIX}add_bos_token")
    is_wanted = {
        "bos": adds_bos if asked is None else asked,
        "eos": head.flag(f"{_PREFIX}add_eos_token") or False,
    }
    ends = {role: vocabulary.tokens[vocabulary.ids[role]] for role in is_wanted if role in vocabulary.ids}
    before, after = ([ends[role]] if is_wanted[role] and role in ends else [] for role in is_wanted)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        special_tokens=[(text, vocabulary.ids[role]) for role, text in ends.items()],
    )
    named = {
        name: vocabulary.tokens[vocabulary.ids[role]]
        for role, name in _NAMES.items()
        if role in vocabulary.ids
    }
    special = {name: text for name, text in named.items() if tokenizer.token_to_id(text) is not None}
    return FastTokenizer(tokenizer, special, chat_template=head.chat_template)


def _byte_level(head: GgufHead, ids: dict[str, int]) -> tuple[Tokenizer, bool]:
    """Return a byte-level BPE, and whether a text begins with BOS if the file does not say."""
    name = head.text(f"{_PREFIX}pre")
    pre = PRE_TOKENIZERS.get(str(name))
    if pre is None:
        fault = "is missing, so it is not known how a text is split before its tokens"
        if name is not None:
            fault = f"is {name[:60]!r}, which gencli does not know"
        raise head.wrong(f"{_PREFIX}pre", f"{fault}; gencli knows {', '.join(PRE_TOKENIZERS)}", hint=_ANEW)
    lines = head.texts(f"{_PREFIX}merges")
    if lines is None:
        raise head.wrong(f"{_PREFIX}merges", "is missing")
    merges = [(left, right) for left, _, right in (pair.partition(" ") for pair in lines)]
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre.takes_whole))
    pre.give_to(tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, pre.adds_bos


def _sentencepiece(head: GgufHead, vocabulary: GgufVocabulary, ids: dict[str, int]) -> Tokenizer:
    """Return a BPE that merges by the scores of SentencePiece, with unknown characters as bytes."""
    scores = head.numbers(f"{_PREFIX}scores")
    if scores is None or len(scores) != len(vocabulary.tokens):
        raise head.wrong(f"{_PREFIX}scores", "is missing or has another length than the tokens")
    normal = {
        text: float(score)
        for text, kind, score in zip(vocabulary.tokens, vocabulary.kinds, scores, strict=True)
        if kind == NORMAL
    }
    if len(normal) > 1 and len(set(normal.values())) == 1:
        raise head.wrong(
            f"{_PREFIX}scores", "are all equal, so the order of merges is not known; convert the model anew"
        )
    unknown = vocabulary.tokens[vocabulary.ids["unknown"]] if "unknown" in vocabulary.ids else None
    model = models.BPE(
        ids,
        _merges(normal, ids),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=vocabulary.kinds.count(BYTE) == 256,
    )
    tokenizer = Tokenizer(model)
    space = head.flag(f"{_PREFIX}add_space_prefix") is not False
    steps: list[Any] = [normalizers.Prepend("▁")] if space else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(content=" ", left=1)] if space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges(scores: Mapping[str, float], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a SentencePiece vocabulary, the best score first.

    A token has a merge for each split into two tokens. Equal scores are ordered as transformers' converter
    does: longer left parts first.
    """
    merges: list[tuple[float, int, int, str, str]] = []
    for text, score in scores.items():
        splits = [(text[:at], text[at:]) for at in range(1, len(text))]
        pairs = [(left, right) for left, right in splits if left in scores and right in scores]
        pairs.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(score, len(left), len(right), left, right) for left, right in pairs]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for *_, left, right in merges]


_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORDS = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|NUMBERS|{_OTHER}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+SHORT|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*SHORT|NUMBERS"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is split: by `pattern`, or as GPT-2 does where it is empty, with `digits` one by one.

    `is_nfc` composes characters before. `takes_whole` takes a part that is a token as it is, without merges.
    `adds_bos` begins a text with BOS if the file does not say.
    """

    pattern: str = ""
    digits: bool = False
    is_nfc: bool = False
    takes_whole: bool = False
    adds_bos: bool = False

    def give_to(self, tokenizer: Tokenizer) -> None:
        """Set the normalizer and the pre-tokenizer of a tokenizer."""
        if self.is_nfc:
            tokenizer.normalizer = normalizers.NFC()
        parts: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if self.digits else []
        if self.pattern:
            parts.append(pre_tokenizers.Split(Regex(self.pattern), "isolated"))
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.pattern))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)


_GPT2, _NEOX, _DIGITS = PreTokenizer(), PreTokenizer(is_nfc=True), PreTokenizer(digits=True)
_THREE = _WORDS.replace("NUMBERS", r"\p{N}{1,3}")
_ONE = _WORDS.replace("NUMBERS", r"\p{N}")
_LLAMA3 = PreTokenizer(_THREE, takes_whole=True, adds_bos=True)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **dict.fromkeys(("gpt-2", "phi-2"), _GPT2),
    **dict.fromkeys(("olmo", "mpt"), _NEOX),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer(_THREE)),
    "qwen2": PreTokenizer(_ONE, is_nfc=True),
    "deepseek-r1-qwen": PreTokenizer(_ONE),
    "tekken": PreTokenizer(
        _CASED.replace("SHORT", "").replace("NUMBERS", r"\p{N}"), takes_whole=True, adds_bos=True
    ),
    "gpt-4o": PreTokenizer(_CASED.replace("SHORT", f"{_SHORT}?").replace("NUMBERS", r"\p{N}{1,3}")),
}
