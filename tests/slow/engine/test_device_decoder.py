"""gencli's own decoder on a device of its own: the texts of the CPU, and one wait for the device a step."""

import json

import pytest
import torch
import transformers as hf

from gencli.core.request import Beams, Contrastive, Drafting, Guidance, LayerContrast, Stops, Verification
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.families import read_spec
from gencli.models.files.checkpoint import read_checkpoint, read_folder
from gencli.models.other_runners import run_on_side_stream
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import request
from tests.models.tiny_models import NATIVE_CONFIGS, long_rope
from tests.sham import Card, sham_device
from tests.slow.engine.test_device import READ_DRAFT, reads
from tests.speculative.cases import LETTERS, SCHEMA, WIDTH, outcomes

CHAIN = "repetition=1.1 | temperature=0.8 | top_p=0.9"


class Counting(DecoderRunner):
    """A decoder that counts the steps that choose a token."""

    steps = 0

    def forward(self, plan):
        self.steps += bool(plan.num_rows)
        return super().forward(plan)

    def forward_layers(self, plan, layers, lanes=()):
        self.steps += bool(plan.num_rows)
        return super().forward_layers(plan, layers, lanes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saves a model of a kind once, with a vocabulary for the requests."""
    made = {}

    def of(kind):
        if kind not in made:
            torch.manual_seed(1)
            config = long_rope("phi3").config if kind == "longrope" else NATIVE_CONFIGS[kind]()
            config.vocab_size = WIDTH
            made[kind] = tmp_path_factory.mktemp(kind)
            hf.AutoModelForCausalLM.from_config(config).save_pretrained(made[kind])
        return made[kind]

    return of


def saved(path):
    folder, config = read_folder(str(path))
    return read_checkpoint(folder, config, read_spec(config))


def check(folder, kind, requests, *, drafter=lambda make: None, allowed=(), **options):
    """Compare both devices; the host waits for each step's tokens, and for nothing else but `allowed`."""

    def make(device):
        return Counting.load(saved(folder(kind)), dtype="float32", device=device, max_lanes=12)

    runner = make("cpu")
    here, _ = outcomes(requests, runner=runner, drafter=drafter(lambda: make("cpu")), **options)
    with sham_device() as seen:
        there, draft = make("cuda"), drafter(lambda: make("cuda"))
        seen.clear()  # of the loading
        found, stood = outcomes(requests, runner=there, drafter=draft, **options)
    assert found == here
    assert reads(seen) == runner.steps
    assert set(seen.waits) <= set(allowed)
    return stood


def texts(**rest):
    """Prompts of several lengths, most of which are read in chunks."""
    sizes = {"a": 3, "b": 40, "c": 12, "d": 1, "e": 25}
    options = {"chain": CHAIN, "max_tokens": 8} | rest
    return [request(c * size, key=c, **options) for c, size in sizes.items()]


DRAFTERS = {"ngram": lambda make: NgramDrafter(), "model": lambda make: ModelDrafter(make())}


def test_drafts(folder):
    for name, policy in (("ngram", "match"), ("model", "match"), ("model", "rejection")):
        drafting = Drafting(name, 3, verification=Verification(policy))
        stages = ("", " | temperature=0.7 | top_p=0.9", " | repetition=1.3 | top_k=3")
        options = {"drafting": drafting, "max_tokens": 16}
        requests = [request("abcabcdabcaaaa", key=c, chain=LETTERS + c, **options) for c in stages]

        def drafter(make, name=name):
            return AdaptiveDrafter(DRAFTERS[name](make), name=name, clock=lambda: 0.0)

        stood = check(folder, "llama", requests, drafter=drafter, allowed=(READ_DRAFT,))
        assert stood or name == "ngram"


def test_a_draft_model_on_a_stream_of_its_own_on_the_second_of_two_gpus(folder):
    drafting = Drafting("model", 3)
    requests = [request("abcabc", key="drafts", chain=LETTERS, drafting=drafting, max_tokens=12), *texts()]

    def run(device):
        runner, draft = (Counting.load(saved(folder("llama")), dtype="float32", device=device) for _ in "ab")
        drafter = AdaptiveDrafter(ModelDrafter(run_on_side_stream(draft)), name="model", clock=lambda: 0.0)
        return outcomes(requests, runner=runner, drafter=drafter, max_batch=4, step_tokens=24)

    here = run("cpu")
    with sham_device(Card(), Card()):
        assert run("cuda:1") == here


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
