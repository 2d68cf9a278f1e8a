"""Words are a vocabulary for stages that look at texts."""

from gencli.explain.token_record import Words


def test_ids_have_their_texts():
    words = Words(["a", " b"])
    assert (words.vocab_size, words.token_bytes) == (2, [b"a", b" b"])
    assert (words.encode(" b"), words.encode("c")) == ([1], [])
    assert Words.numbered(3).token_bytes[2] == b"#2"
