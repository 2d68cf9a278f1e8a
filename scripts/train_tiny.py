"""Train the bundled models from generated text: a tokenizer, `tiny`, and `tiny-draft`.

    python scripts/train_tiny.py                                # the bundled models, with one seed
    python scripts/train_tiny.py --fraction 0.01 --out /tmp/t   # a quick try

One thread by default: a run then gives the same weights again on the same machine.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import eval_tiny
import torch
from tiny_corpus import documents
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

ASSETS = Path(__file__).parents[1] / "gencli" / "assets"
BOS, EOS, PAD, END = "<|bos|>", "<|eos|>", "<|pad|>", "<|end|>"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
VOCABULARY = 2048
CONTEXT = 1024
TOKENIZER_DOCUMENTS = 20_000

# Every batch has 1,024 tokens: what counts at this size is the number of updates. Most rows are
# short, since those are cheap; the long ones teach every position up to the context length.
ROW_LENGTHS = (128, 256, 128, 512, 128, 256, 128, 1024)
BATCH_TOKENS = 1024
WARM_UP_STEPS = 200
DECAY_SHARE = 0.3
LESSON_STEPS = (10_000, 1_500)
TINY_RATE = 1.5e-3
DRAFT_STEPS = 3_500
DRAFT_RATE = 3e-3
LOG_EVERY = 100
SAVE_EVERY = 1_000

# The roles are spelled out, so that a conversation is exactly what `tiny.chat.render` wrote.
CHAT_TEMPLATE = """\
{{- '<|bos|>' }}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('This model knows the roles system, user and assistant.') }}
    {%- endif %}
    {{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""

Loss = Callable[[LlamaForCausalLM, torch.Tensor], torch.Tensor]


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE that adds one `<|bos|>`.

    A space before a capital or a digit is a token of its own, and so is every digit: a name or a number has
    the same tokens in a sentence and in the quotes of a record.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" (?=[\p{Lu}\p{N}])|\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS, PAD, *ROLES, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(itertools.islice(documents(seed, "train"), TOKENIZER_DOCUMENTS), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[*ROLES, END],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def new_model(
    tokenizer: PreTrainedTokenizerFast, layers: int, width: int, heads: int, inner: int
) -> LlamaForCausalLM:
    """Make an untrained Llama that ends a text with `<|eos|>` and an answer with `<|end|>`."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END)],
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


def batches(tokenizer: PreTrainedTokenizerFast, seed: int, lesson: int) -> Iterator[torch.Tensor]:
    """Yield rows of whole documents that start with `<|bos|>`; the last document of a row is cut."""
    texts = documents(seed, "train", lesson)

    def row(length: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < length:
            ids += [*tokenizer(next(texts)).input_ids, tokenizer.eos_token_id]
        return ids[:length]

    for length in itertools.cycle(ROW_LENGTHS):
        yield torch.tensor([row(length) for _ in range(BATCH_TOKENS // length)])


def next_token_loss(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of the next tokens."""
    logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def imitation_loss(teacher: LlamaForCausalLM) -> Loss:
    """Return the divergence of the model's distributions from the teacher's."""
    teacher.eval()

    def loss(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = teacher(input_ids=batch, use_cache=False).logits.flatten(0, 1).log_softmax(-1)
        got = model(input_ids=batch, use_cache=False).logits.flatten(0, 1).log_softmax(-1)
        return functional.kl_div(got, wanted, reduction="batchmean", log_target=True)

    return loss


def share_of_rate(step: int, steps: int) -> float:
    """Return the learning rate's factor: warm-up, constant, then linear to zero."""
    warm = (step + 1) / WARM_UP_STEPS
    left = (steps - step) / (steps * DECAY_SHARE)
    return min(warm, left, 1.0)


def train(
    model: LlamaForCausalLM,
    loss_of: Loss,
    data: Iterator[torch.Tensor],
    steps: int,
    rate: float,
    folder: Path,
) -> None:
    """Run all steps; the folder is usable from the first checkpoint on."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    started, recent = time.monotonic(), 0.0
    model.train()
    for step, batch in enumerate(itertools.islice(data, steps)):
        for group in optimizer.param_groups:
            group["lr"] = rate * share_of_rate(step, steps)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent += loss.item()
        if (step + 1) % LOG_EVERY == 0:
            seconds = time.monotonic() - started
            tokens = (step + 1) * BATCH_TOKENS
            print(
                f"{folder.name} step {step + 1}/{steps} loss {recent / LOG_EVERY:.3f} "
                f"tokens {tokens / 1e6:.2f}M {seconds / 60:.1f} min {tokens / seconds:.0f} tok/s",
                flush=True,
            )
            recent = 0.0
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            model.save_pretrained(folder)
            (folder / "model.safetensors").chmod(0o644)


def main() -> None:
    """Train all models, then evaluate the stored files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder for tiny/ and tiny-draft/")
    parser.add_argument("--fraction", type=float, default=1.0, help="share of the steps to run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tiny_folder, draft_folder = options.out / "tiny", options.out / "tiny-draft"

    tokenizer = train_tokenizer(options.seed)
    for folder in (tiny_folder, draft_folder):
        tokenizer.save_pretrained(folder)
    tiny = new_model(tokenizer, layers=6, width=160, heads=5, inner=448)
    for lesson, steps in enumerate(LESSON_STEPS):
        data = batches(tokenizer, options.seed + lesson, lesson)
        train(tiny, next_token_loss, data, round(steps * options.fraction), TINY_RATE, tiny_folder)
    draft = new_model(tokenizer, layers=1, width=128, heads=4, inner=384)
    data = batches(tokenizer, options.seed + len(LESSON_STEPS), lesson=len(LESSON_STEPS) - 1)
    train(draft, imitation_loss(tiny), data, round(DRAFT_STEPS * options.fraction), DRAFT_RATE, draft_folder)
    eval_tiny.report(options.out)


if __name__ == "__main__":
    main()
