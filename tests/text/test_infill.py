"""Prompts that fill a hole: the tokens of each family around the two texts."""

from gencli.text.tokenizer import ByteTokenizer, infill_of
from tests.text.conftest import byte_level, llama_like, metaspace


def with_tokens(make, *names):
    """A tokenizer that has these tokens, too."""
    tokenizer = make.__wrapped__()
    tokenizer._hf.add_tokens(list(names), special_tokens=True)
    return tokenizer, [tokenizer._hf.convert_tokens_to_ids(name) for name in names]


def test_the_tokens_stand_around_the_texts():
    for names in [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
    ]:
        for make in [byte_level, llama_like, metaspace]:
            tokenizer, (prefix, suffix, middle, *ends) = with_tokens(make, *names)
            infill = infill_of(tokenizer)
            assert (infill.prefix, infill.suffix, infill.middle, infill.ends) == (
                prefix, suffix, middle, tuple(ends),
            ), (names, make)  # fmt: skip
            ids = list(infill.prompt(tokenizer, "Hello", "a llo"))
            if tokenizer.encode("a")[0] == tokenizer.bos_id:
                assert ids.pop(0) == tokenizer.bos_id, (names, make)
            at = ids.index(suffix)
            assert (ids[0], ids[-1]) == (prefix, middle), (names, make)
            assert ids[1:at] == tokenizer.encode("Hello", special=False), (names, make)
            pieces = [tokenizer.token_bytes[token] for token in ids[at + 1 : -1]]
            assert b"".join(pieces) == b"a llo", (names, make)

    assert infill_of(ByteTokenizer()) is None
    assert infill_of(byte_level()) is None
    assert infill_of(with_tokens(byte_level, "<fim_prefix>", "<fim_suffix>")[0]) is None
