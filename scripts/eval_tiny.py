"""Measure the stored files of `tiny` and `tiny-draft` on held-out inputs.

python scripts/eval_tiny.py [--models gencli/assets]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tiny import chat, notes, records, stories, world
from tiny.plots import MOOD_WORDS
from tiny.words import BOYS, GIRLS, MOODS, NUMBERS, with_article
from tiny_corpus import documents, record_pairs
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

ASSETS = Path(__file__).parents[1] / "gencli" / "assets"
SEED = 7
LIMIT = 200
GUIDANCE = 2.0


@dataclass
class Writer:
    """A stored model with its tokenizer, and the number of texts that it ended itself."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel
    ended: list[bool] = field(default_factory=list)

    def complete(self, prompt: str, **settings: object) -> str:
        """Continue a prompt; greedy by default."""
        ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        options = {"do_sample": False, "max_new_tokens": LIMIT} | settings
        new = self.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]
        self.ended.append(int(new[-1]) in self.model.generation_config.eos_token_id)
        return self.tokenizer.decode(new, skip_special_tokens=True)


def load(folder: Path) -> Writer:
    """Load a stored folder with transformers."""
    return Writer(AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval())


def share(hits: Iterable[bool]) -> str:
    """Return a share as a percentage with its counts."""
    values = list(hits)
    return f"{100 * sum(values) / len(values):.1f} % ({sum(values)} of {len(values)})"


def chat_prompt(user: str, system: str | None = None) -> str:
    """Write one user turn up to where the answer begins."""
    return chat.render([(user, "")], system).removesuffix("<|end|>")


def exact(writer: Writer, pairs: Iterable[tuple[str, str]]) -> str:
    """Return the share of prompts with exactly the right completion."""
    return share(writer.complete(prompt) == wanted for prompt, wanted in pairs)


def chat_pairs(n: int) -> list[tuple[str, str]]:
    """Return held-out chat turns with one right answer: records, facts and repetitions."""
    rng = Random(SEED)
    tasks = (chat.record_request, chat.question, chat.repetition)
    turns = [tasks[i % len(tasks)](rng, "held-out")[0] for i in range(n)]
    return [(chat_prompt(user), answer) for user, answer in turns]


def name_pairs(n: int) -> list[tuple[str, str]]:
    """Return held-out conversations in which the answer is the user's name."""
    rng = Random(SEED)
    pairs = []
    for _ in range(n):
        *before, (question, answer) = chat.introduction(rng, "held-out")
        pairs.append((chat.render(before) + chat_prompt(question), answer))
    return pairs


def right_list(text: str, what: notes.List) -> bool:
    """Whether the list has the required number of different members of the category."""
    category, length = what
    items = [line.removeprefix("- ") for line in text.strip().splitlines()]
    return len(items) == len(set(items)) == length and set(items) <= set(notes.CATEGORIES[category])


def list_share(writer: Writer) -> str:
    """Return the share of right lists of held-out categories and lengths."""
    wanted = notes.lists("held-out")
    prompts = [f"List: {NUMBERS[length]} {category}" for category, length in wanted]
    return share(right_list(writer.complete(p), what) for p, what in zip(prompts, wanted, strict=True))


def hero_share(writer: Writer, n: int) -> str:
    """Return the share of stories that name their hero again, and no other hero."""
    rng = Random(SEED)

    def consistent() -> bool:
        hero = stories.story_hero(rng, "held-out")
        story = writer.complete(f"Once upon a time, there was {with_article(hero.kind)} named {hero.name}.")
        others = {*GIRLS, *BOYS} - {hero.name}
        return hero.name in story and not any(word.strip('.,!?"') in others for word in story.split())

    return share(consistent() for _ in range(n))


def mood_stories(writer: Writer, n: int, **settings: object) -> list[tuple[str, str]]:
    """Return `n` stories, with their moods, about heroes that training never combines with the mood."""
    rng = Random(SEED)
    told = []
    for mood in MOODS * (n // len(MOODS)):
        prompt = f"Mood: {mood}\nStory: {stories.mood_hero(rng, 'held-out', mood).name}"
        told.append((mood, writer.complete(prompt, **settings)))
    return told


def mood_share(told: list[tuple[str, str]]) -> str:
    """Return the share of stories whose most frequent mood words belong to the prompt's mood."""
    return share(stories.mood_of(story) == mood for mood, story in told)


def mood_density(told: list[tuple[str, str]]) -> str:
    """Return the mood's words per hundred words."""
    words = [
        (word.strip('.,!?"').lower() in MOOD_WORDS[mood]) for mood, story in told for word in story.split()
    ]
    return f"{100 * statistics.mean(words):.1f} of 100 words"


def agreement(tiny: Writer, draft: Writer, texts: Iterable[str]) -> str:
    """Return the share of positions where both models have the same most likely token."""
    same: list[bool] = []
    for text in texts:
        ids = tiny.tokenizer(text, return_tensors="pt").input_ids
        with torch.inference_mode():
            first, second = (writer.model(input_ids=ids).logits[0].argmax(-1) for writer in (tiny, draft))
        same += (first == second).tolist()
    return share(same)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the least time of several calls."""
    times = []
    for _ in range(100):
        started = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - started))
    return min(times)


def step_times(writer: Writer) -> tuple[float, float]:
    """Return the times of one forward pass over 128 tokens, and over one token after them."""
    ids = torch.arange(10, 138)[None]
    with torch.inference_mode():
        whole = milliseconds(lambda: writer.model(input_ids=ids, use_cache=False))
        cache = writer.model(input_ids=ids, use_cache=True).past_key_values

        def one_more() -> None:
            writer.model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
            cache.crop(-1)

        return whole, milliseconds(one_more)


def costs(tiny: Writer, draft: Writer) -> dict[str, str]:
    """Return parameters and times of both models."""
    big, small = (writer.model.num_parameters() for writer in (tiny, draft))
    times = {
        label: pair
        for label, *pair in zip(("128 tokens", "1 token"), *map(step_times, (tiny, draft)), strict=True)
    }
    return {"parameters, tiny / draft": f"{big:,} / {small:,} = {big / small:.1f}"} | {
        f"forward of {label}, tiny / draft": f"{a:.2f} ms / {b:.2f} ms = {a / b:.1f}"
        for label, (a, b) in times.items()
    }


def ended_share(writer: Writer, prompts: Iterable[str], **settings: object) -> str:
    """Return the share of texts that end by themselves."""
    before = len(writer.ended)
    for prompt in prompts:
        writer.complete(prompt, **settings)
    return share(writer.ended[before:])


def figures(tiny: Writer, draft: Writer) -> dict[str, str]:
    """Return all measurements in print order."""
    torch.manual_seed(SEED)
    plain = mood_stories(tiny, 100)
    sampled = {"do_sample": True, "top_k": 0}
    loose, guided = (mood_stories(tiny, 50, **sampled, **more) for more in ({}, {"guidance_scale": GUIDANCE}))
    unseen = list(islice(documents(SEED, "held-out"), 300))
    greedy = ["Once upon a time" + tiny.complete("Once upon a time")]
    greedy += [prompt + tiny.complete(prompt) for prompt, _ in record_pairs(20, "held-out", SEED)]
    return {
        "records, exact": exact(tiny, record_pairs(200, "held-out")),
        "facts, exact": exact(tiny, world.fact_pairs("held-out")),
        "chat: records, facts, repetitions, exact": exact(tiny, chat_pairs(90)),
        "chat: name remembered": exact(tiny, name_pairs(30)),
        "repetitions, exact": exact(tiny, [records.echo_pair(Random(i), "held-out") for i in range(50)]),
        "lists, right": list_share(tiny),
        "stories, hero kept": hero_share(tiny, 100),
        "moods, right": mood_share(plain),
        "moods, right, sampled": mood_share(loose),
        f"moods, right, sampled, guidance {GUIDANCE}": mood_share(guided),
        "mood words, sampled": mood_density(loose),
        f"mood words, sampled, guidance {GUIDANCE}": mood_density(guided),
        "ended by itself, all of the above": share(tiny.ended),
        "ended by itself, 100 sampled stories": ended_share(tiny, ["Once upon a time"] * 100, **sampled),
        "draft agrees, held-out text": agreement(tiny, draft, unseen),
        "draft agrees, tiny's own text": agreement(tiny, draft, greedy),
    } | costs(tiny, draft)


def report(folder: Path) -> None:
    """Print the measurements and the folder sizes."""
    tiny, draft = load(folder / "tiny"), load(folder / "tiny-draft")
    for name, figure in figures(tiny, draft).items():
        print(f"{name}: {figure}", flush=True)
    sizes = {
        name: sum(f.stat().st_size for f in (folder / name).iterdir()) for name in ("tiny", "tiny-draft")
    }
    both = sum(sizes.values()) / 2**20
    print(f"size: {' + '.join(f'{name} {size:,}' for name, size in sizes.items())} bytes = {both:.2f} MiB")


def main() -> None:
    """Measure with one thread: the same machine gives the same figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=ASSETS, help="folder of tiny/ and tiny-draft/")
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    report(parser.parse_args().models)


if __name__ == "__main__":
    main()
