"""A model and a draft head that equals it, and requests whose drafts are all accepted then."""

from __future__ import annotations

import json

import torch
import transformers as hf

from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.head_files import open_mtp
from gencli.speculative.head_models import read_head
from tests.engine.harness import request
from tests.models.native import native_decoder
from tests.models.tiny_models import base
from tests.speculative.tiny_heads import write_tensors

WINDOW = 16


def copying(folder):
    """A model of one layer with a sliding window, and an MTP layer that computes what it does, on 8 lanes.

    The embeddings have one length, so that a norm of them is a factor. The entries of a head lack the first
    token of a text; no token sees it that is farther away than the window.
    """
    config = hf.MistralConfig(**base(num_hidden_layers=1, sliding_window=WINDOW, vocab_size=258))
    torch.manual_seed(2)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    embeddings = model.model.embed_tokens.weight.data
    embeddings /= embeddings.square().mean(-1, keepdim=True).sqrt()
    inner = model.model.layers[0].state_dict()
    tensors = {f"model.layers.1.{name}": tensor for name, tensor in inner.items()}
    size = config.hidden_size
    tensors["model.layers.1.enorm.weight"] = tensors["model.layers.1.hnorm.weight"] = torch.ones(size)
    tensors["model.layers.1.eh_proj.weight"] = torch.cat((torch.eye(size), torch.zeros(size, size)), -1)
    tensors["model.layers.1.shared_head.norm.weight"] = model.model.norm.weight.data
    known = {key: value for key, value in config.to_dict().items() if value is not None}
    (folder / "config.json").write_text(json.dumps(known | {"num_nextn_predict_layers": 1}), encoding="utf-8")
    write_tensors(folder / "model.safetensors", tensors)
    runner = DecoderRunner(native_decoder(model), max_lanes=8)
    return runner, read_head(open_mtp(str(folder), runner.spec), runner)


def copied():
    """Requests on each side of the window, that begin alike or not, drawn or greedy, of one sample or two."""
    chain = "temperature=1.2 | top_p=0.9 | frequency=0.5 | ignore_eos=true"
    return [
        request("A text that is longer than the window: one", key=1, n=2, chain=chain),
        request("A text that is longer than the window: two", key=2, chain="temperature=0 | ignore_eos=true"),
        request("Another one, which has nothing in common with them.", key=3, chain=chain),
        request("A text that is longer than the window: one, and more", key=4, chain=chain, max_tokens=9),
    ]
