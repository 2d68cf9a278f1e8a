"""Models of other vocabularies: tiny with its ids permuted, random ones, and one that recites."""

from __future__ import annotations

import json
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gencli.models.files.local_models import bundled_folder
from gencli.models.other_runners import FakeRunner
from gencli.text.tokenizer import HFTokenizer
from processors.grammar.forced_tokens import tokens_behind

LINES = (
    "Once upon a time there was a little girl who lived in a red house near the forest.",
    "One day she said to her friend: Let us go to the lake and look for the old boat!",
    "The dog ran, and the bird sang. They were very happy, because it was their home.",
)


def permuted(folder):
    """tiny as it is, but for its ids: all of them are others."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(bundled_folder("tiny"), folder)
    order = torch.randperm(2048, generator=torch.Generator().manual_seed(1)).tolist()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {token: order[i] for token, i in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        added["id"] = order[added["id"]]
    for special in tokenizer["post_processor"]["special_tokens"].values():
        special["ids"] = [order[i] for i in special["ids"]]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        for key, found in config.items():
            if key.endswith("_token_id"):
                config[key] = [order[i] for i in found] if isinstance(found, list) else order[found]
        (folder / name).write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = torch.empty_like(embedding).index_copy_(
        0, torch.tensor(order), embedding
    )
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return str(folder)


def trained(size, *, split=True, begins=False):
    """A byte-level tokenizer of so many tokens, which may split at words and put <s> before a text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "</s>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    if begins:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return HFTokenizer(
        PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>"), f"bpe:{size}"
    )


def spaced(size, scheme="always"):
    """As sentencepiece writes texts: a space before the first word, rare characters as bytes."""
    backend = Tokenizer(models.BPE(byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["</s>"], show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    told = json.loads(backend.to_str())
    vocab = told["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    backend = Tokenizer.from_str(json.dumps(told))
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"), f"spaced:{size}")


def random_model(folder, tokenizer):
    """A random model of the tokenizer's vocabulary, in a folder."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size + 6,  # a few ids that no tokenizer knows
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_ids[0],
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer._hf.save_pretrained(folder)
    return str(folder)


class Reciter(FakeRunner):
    """Continues each text that it knows in its tokenizer's tokens, whatever tokens it was begun in."""

    def __init__(self, tokenizer, texts, **options):
        super().__init__(tokenizer.vocab_size, **options)
        self._tokenizer, self._texts, self._held = tokenizer, [text.encode() for text in texts], {}
        self.feeds = []

    def forward(self, plan):
        self.feeds.append(plan.feeds)
        self._lengths.check(plan)
        self._lengths.advance(plan)
        for feed in plan.feeds:
            held = self._held.setdefault(feed.lane, [])
            held[feed.start :] = feed.tokens
        rows = [self._logits(self._held[feed.lane]) for feed in plan.feeds if feed.num_logits]
        return torch.stack(rows) if rows else torch.empty(0, self._tokenizer.vocab_size)

    def fork(self, source, target):
        super().fork(source, target)
        self._held[target] = [*self._held[source]]

    def _logits(self, held):
        told = b"".join(self._tokenizer.token_bytes[token] for token in held)
        texts = [text[len(told) :] for text in self._texts if text.startswith(told)]
        logits = torch.zeros(self._tokenizer.vocab_size)
        if not texts:
            return logits
        rest, before = texts[0].decode(errors="ignore"), told.decode(errors="ignore")[-32:]
        ids = tokens_behind(self._tokenizer, before, rest) or self._tokenizer.encode(rest, special=False)
        logits[ids[0] if ids else self._tokenizer.eos_ids[0]] = 20.0
        return logits


__all__ = ["LINES", "Reciter", "permuted", "random_model", "spaced", "trained"]
