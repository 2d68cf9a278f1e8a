"""The profile llama-cpp beside llama.cpp's own chain of samplers, through its Python binding."""

import ctypes

import pytest
import torch

from tests.helpers.profiles import far_rows, own_rows, random_rows

llama = pytest.importorskip("llama_cpp")
VOCAB, ROWS = 300, 500
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}

CHAINS = {
    "defaults": {},
    "top_k": {**OFF, "top_k": 12},
    "top_p": {**OFF, "top_p": 0.813},
    "min_p": {**OFF, "min_p": 0.06},
    "typical": {**OFF, "typical": 0.613},
    "top_n_sigma": {**OFF, "top_n_sigma": 1.3},
    "xtc": {**OFF, "xtc_probability": 1.0, "xtc_threshold": 0.07},
    "dynamic": {**OFF, "dynatemp_range": 0.5, "dynatemp_exponent": 1.7},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.4},
    "typical and others": {"top_k": 60, "typical": 0.9137, "top_p": 0.9137, "min_p": 0.02},
    # Without typical: its entropy is not a number there beside tokens that top_n_sigma has masked.
    "all": {"repetition_penalty": 1.1, "top_n_sigma": 2.0, "top_k": 60, "top_p": 0.9137, "min_p": 0.02,
            "xtc_probability": 1.0, "temperature": 0.7},
}  # fmt: skip


def llama_rows(logits, prompts, given):
    """What llama.cpp's samplers in its default order make of each row, its penalties over the prompt."""
    get = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, **given}.get
    found = torch.full_like(logits, -torch.inf)
    for row, (values, prompt) in enumerate(zip(logits, prompts.tolist(), strict=True)):
        chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        for made in (
            llama.llama_sampler_init_penalties(logits.shape[1], 64, get("repetition_penalty", 1.0),
                                               get("frequency_penalty", 0.0), get("presence_penalty", 0.0)),
            llama.llama_sampler_init_top_n_sigma(get("top_n_sigma", -1.0)),
            llama.llama_sampler_init_top_k(get("top_k")),
            llama.llama_sampler_init_typical(get("typical", 1.0), 0),
            llama.llama_sampler_init_top_p(get("top_p"), 0),
            llama.llama_sampler_init_min_p(get("min_p"), 0),
            llama.llama_sampler_init_xtc(get("xtc_probability", 0.0), get("xtc_threshold", 0.1), 0, 1),
            llama.llama_sampler_init_temp_ext(get("temperature"), get("dynatemp_range", 0.0),
                                              get("dynatemp_exponent", 1.0)),
        ):  # fmt: skip
            llama.llama_sampler_chain_add(chain, made)
        for token in prompt:
            llama.llama_sampler_accept(chain, token)
        finite = [(token, value) for token, value in enumerate(values.tolist()) if value > -torch.inf]
        data = (llama.llama_token_data * len(finite))(*((token, value, 0.0) for token, value in finite))
        array = llama.llama_token_data_array(data, len(finite), -1, False)
        llama.llama_sampler_apply(chain, ctypes.byref(array))
        kept = [(array.data[place].id, array.data[place].logit) for place in range(array.size)]
        found[row, [token for token, _ in kept]] = torch.tensor([value for _, value in kept])
        llama.llama_sampler_free(chain)
    return found


def assert_rows_are_those_of_llama_cpp(name, *, ties):
    prompts, logits = random_rows(ROWS, VOCAB, ties=ties)
    own, theirs = (
        own_rows("llama-cpp", logits, prompts, **CHAINS[name]),
        llama_rows(logits, prompts, CHAINS[name]),
    )
    # Of 40 equal tokens 38 have exactly the mass of 0.95, a sum that rounds to either side.
    assert far_rows(own, theirs, ties=ties) <= ROWS // 50, (name, ties)


def test_all_of_its_chain_makes_the_distributions_of_llama_cpp():
    assert_rows_are_those_of_llama_cpp("all", ties=False)
