"""gencli's own decoder on a device of its own: the texts of the CPU, and one wait for the device a step."""

import json

from gencli.core.request import Beams, Contrastive, Guidance, LayerContrast, Stops
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import request
from tests.engine.test_device_decoder import CHAIN, check, folder, texts
from tests.speculative.cases import LETTERS, SCHEMA

SUITE = ("llama", "gemma3", "mixtral", "gpt_oss", "longrope")  # a model for each class of attention


def test_prompts_in_chunks(folder):
    for kind in SUITE:
        check(folder, kind, texts(), max_batch=3, step_tokens=16)


def test_stops_grammars_beams_searches_and_samples_share_steps(folder):
    grammar = Chain((("grammar", GrammarParams(json.dumps(SCHEMA))),))
    requests = [
        *texts(chain=LETTERS),
        request("{}", key="grammar", chain=grammar),
        request("abc", key="stop", chain=LETTERS, stops=Stops(strings=("ab", "dc"), patterns=("c[ab]",))),
        request("abc", key="beams", chain=LETTERS, beams=Beams(3), max_tokens=6),
        request("abc", key="best", chain=LETTERS, best_of=3, n=2, max_tokens=6),
        request("abc", key="search", chain="top_p=0.9", contrastive=Contrastive(0.6, 3), max_tokens=6),
        request("abc", key="logprobs", chain=CHAIN, logprobs=2, prompt_logprobs=2, max_tokens=6),
        request("abc", key="cold", chain="temperature=0", max_tokens=6),
    ]
    check(folder, "llama", requests, max_batch=6, step_tokens=24)


def test_guidance_contrasts_of_layers_and_prefixes_beside_others(folder):
    requests = [
        *texts(guidance=Guidance(1.7, tuple(b"cold "), cutoff=0.05)),
        request("abc", key="dola", chain=CHAIN, dola=LayerContrast((1,)), max_tokens=8),
        request("abc", key="plain", chain=CHAIN, max_tokens=8),
    ]
    check(folder, "gemma3", requests, max_batch=4, step_tokens=24)
    prompt = "a prompt that others begin with " * 3
    requests = [request(prompt + c, key=c, chain=CHAIN, max_tokens=6) for c in "abcd"]
    check(folder, "qwen3", requests, max_batch=2, step_tokens=64)
