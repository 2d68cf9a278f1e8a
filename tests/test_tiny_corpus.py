"""The generated text that the bundled models learn from."""

import json
import sys
from itertools import islice
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from tiny import notes, records, stories, world
from tiny.plots import MOOD_SENTENCES, MOOD_WORDS, PLAIN_SENTENCES
from tiny.split import Split
from tiny.words import MOODS
from tiny_corpus import documents, record_pairs

SPLITS: tuple[Split, ...] = ("train", "held-out")


def words(text: str) -> set[str]:
    return {word.strip('.,!?"{}') for word in text.lower().split()}


def test_a_seed_decides_every_document():
    for split in SPLITS:
        first, again, other = (list(islice(documents(seed, split), 50)) for seed in (3, 3, 4))
        assert first == again, split
        assert first != other, split


def test_no_document_is_in_both_splits() -> None:
    train, held_out = (set(islice(documents(3, split), 3000)) for split in SPLITS)
    assert not train & held_out


def test_records_of_the_splits_share_no_pair_of_values() -> None:
    keys = [{records.record(Random(seed), split).key for seed in range(800)} for split in SPLITS]
    assert not keys[0] & keys[1]


def test_questions_and_lists_of_the_splits_differ_and_are_complete() -> None:
    train, held_out = (set(world.fact_pairs(split)) for split in SPLITS)
    assert not train & held_out
    assert len(train | held_out) == len(world.FACTS)
    assert not set(notes.lists("train")) & set(notes.lists("held-out"))


def test_every_fact_is_taught_by_some_wording() -> None:
    taught = {completion for _, completion in world.fact_pairs("train")}
    assert {completion for _, completion in world.fact_pairs("held-out")} <= taught


def test_records_are_json_whose_values_stand_in_the_sentence():
    for split in SPLITS:
        for prompt, completion in record_pairs(100, split):
            assert prompt.endswith("\nJSON:"), split
            assert completion.startswith(" {"), split
            assert all(str(value) in prompt for value in json.loads(completion).values()), split


def test_lists_have_no_repetitions() -> None:
    for seed in range(50):
        _, *items = notes.list_text(Random(seed), "train").splitlines()
        assert len(items) == len(set(items))


def test_conversations_close_every_turn() -> None:
    chats = [text for text in islice(documents(5, "train"), 300) if "<|assistant|>" in text]
    assert chats
    for text in chats:
        assert text.endswith("<|end|>")
        assert text.count("<|user|>") == text.count("<|assistant|>")


def test_words_of_a_mood_belong_to_it_alone() -> None:
    for mood in MOODS:
        others = [s for other in MOODS if other != mood for s in MOOD_SENTENCES[other]]
        elsewhere = set().union(*map(words, [*others, *PLAIN_SENTENCES]))
        assert not elsewhere & set(MOOD_WORDS[mood])
        assert all(words(sentence) & set(MOOD_WORDS[mood]) for sentence in MOOD_SENTENCES[mood])


def test_the_most_frequent_mood_is_recognized() -> None:
    assert stories.mood_of('"I am so sad," sighed Tom and cried. Then he smiled.') == "sad"
    assert stories.mood_of("Tom smiled and cried.") is None
    assert stories.mood_of("Tom went home.") is None
