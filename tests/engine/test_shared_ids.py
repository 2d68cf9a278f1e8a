"""Prompts share what is computed by their token ids, never by their text."""

from gencli import LLM

TEXT = "Once upon a time there was a fox who lived in a forest with a big old oak tree."


def test_a_prefix_is_shared_by_ids_and_not_by_text():
    llm = LLM("tiny-draft", dtype="float32")
    tokenizer = llm.tokenizer

    def cached(ids):
        (out,) = llm.generate_from_ids([ids], max_tokens=1)
        return out.samples[0].cached_tokens

    whole = tokenizer.encode(TEXT)
    letters = [token for letter in TEXT for token in tokenizer.encode(letter, special=False)]
    spelt = [whole[0], *letters]  # the same text
    assert tokenizer.decode(spelt) == tokenizer.decode(whole)
    common = next(n for n, pair in enumerate(zip(whole, spelt, strict=False)) if pair[0] != pair[1])
    end = tokenizer.eos_ids[0]
    shown = tokenizer.decode([end], skip_special=False)
    as_text = [token for letter in shown for token in tokenizer.encode(letter, special=False)]
    assert cached(whole) == 0
    assert cached([*whole, end, *whole]) == len(whole)
    assert cached([*whole, *as_text, *whole]) == len(whole)  # not the end token's place, whose text it has
    assert cached(spelt) <= common
    # The ids of a text, and the same ids given, whose text is another: it has the first token too.
    fresh = LLM("tiny-draft", dtype="float32")
    fresh.generate(TEXT, max_tokens=1)
    (given,) = fresh.generate_from_ids([[*whole, 9]], max_tokens=1)
    assert given.prompt != TEXT
    assert given.samples[0].cached_tokens == len(whole)
