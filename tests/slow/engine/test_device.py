"""On a device of its own: the same texts, one wait for the device a step, and no tensor left on the host."""

import json
from dataclasses import replace

import pytest
import torch
import transformers as hf

from gencli.core.request import (
    Beams,
    Contrastive,
    Drafting,
    Guidance,
    LayerContrast,
    Limits,
    Stops,
    Verification,
)
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.families import read_spec
from gencli.models.files.checkpoint import read_checkpoint, read_folder
from gencli.models.hf_runner import HFRunner
from gencli.models.other_runners import FakeRunner, run_on_side_stream
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from tests.engine.beam_cases import request as search
from tests.engine.beam_cases import texts as searched
from tests.engine.harness import request
from tests.models.tiny_models import NATIVE_CONFIGS, build, long_rope
from tests.sham import CUDA, Card, on_sham, sham_device
from tests.speculative.cases import LETTERS, SCHEMA, WIDTH, everything, outcomes

# The one wait of the host: what a step chose, behind an event where the next step is launched meanwhile.
READ = ("tolist", "gencli/engine/step_runner.py:_read"), ("event", "processors/graphs.py:read")
READ_DRAFT = ("tolist", "gencli/speculative/draft_model.py:__call__")  # a draft model's choice, once a pass
CHAIN = "repetition=1.1 | temperature=0.8 | top_p=0.9"


class Counting(FakeRunner):
    """The fake model, which counts the steps that choose a token."""

    def __init__(self, width=WIDTH, **options):
        super().__init__(width, **options)
        self.steps = 0

    def forward(self, plan):
        self.steps += bool(plan.num_rows)
        return super().forward(plan)


def short(requests):
    return [replace(one, limits=Limits(max_tokens=min(one.limits.max_tokens, 8))) for one in requests]


def check(requests, *, drafter=lambda **where: None, **options):
    """Compare both devices; the host waits for each step's tokens, and for no more but a draft model's."""
    runner = Counting()
    here, _ = outcomes(requests, runner=runner, drafter=drafter(), **options)
    with sham_device() as seen:
        there, stood = outcomes(
            requests, runner=Counting(device=CUDA), drafter=drafter(device=CUDA), **options
        )
    assert there == here
    assert reads(seen) == runner.steps
    assert set(seen.waits) <= {READ_DRAFT}
    return stood


def reads(seen):
    """How often the host waited for a step's tokens; these waits are taken from what was seen."""
    return sum(seen.waits.pop(one, 0) for one in READ)


def asks_the_host(one):
    """The scheme selfhash hashes each of the best tokens with those before it, on the host."""
    kgw = one.chain.get("kgw")
    return kgw is not None and kgw.scheme == "selfhash"


def check_each(step):
    check([one for one in short(everything()) if not asks_the_host(one)][::step], max_batch=16)


def test_stages_stops_and_grammars():
    check_each(8)


DRAFTERS = {
    "ngram": lambda **where: NgramDrafter(),
    "model": lambda **where: ModelDrafter(FakeRunner(WIDTH, **where)),
}


def check_drafts(name, policy):
    def drafter(**where):
        return AdaptiveDrafter(DRAFTERS[name](**where), name=name, clock=lambda: 0.0)

    two = "allowed=[97,98]"
    chains = (LETTERS, f"{two} | temperature=0.7 | top_p=0.9", f"{two} | repetition=1.3 | top_k=3")
    drafting = Drafting(name, 3, verification=Verification(policy))
    requests = [request("abcabcdabc", key=c, chain=c, drafting=drafting) for c in chains]
    assert check(requests, drafter=drafter), (name, policy)


class Wide(FakeRunner):
    """The fake model with logits of 8,256 ids, more than are drawn from one by one."""

    def __init__(self):
        super().__init__(258)
        self.table = self.table.repeat(1, 32).to(CUDA)
        self._spec = replace(self._spec, vocab_size=self.table.shape[1], device=CUDA)


# Kernels that a decode step of 8 rows launches outside the model, by chain. Raise a number only for a reason.
LAUNCHES = {
    "temperature=0": 9,
    "temperature=0.8": 10,
    "temperature=0.8 | top_k=50": 12,
    "temperature=0.8 | top_p=0.9": 12,
    "temperature=0.8 | min_p=0.05": 12,
    "repetition=1.1 | temperature=0.8": 10,
    'bias={"98": 1, "99": -2} | temperature=0.8': 10,
    "allowed=[97,98,99] | temperature=0.8": 10,
    "min_tokens=30 | temperature=0.8 | top_p=0.9": 12,
    "presence=0.5 | repetition=1.1 | temperature=0.8": 10,
    "repetition=1.1 | frequency=0.5 | temperature=0.8 | min_p=0.05 | top_k=50 | top_p=0.95": 12,
    'grammar:kind=regex,text="[a-z]+" | repetition=1.1 | presence=0.2 | temperature=0.8 | top_p=0.95': 13,
}
needs_2_13 = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13"
)


def check_launches(chain):
    counts = []
    for tokens in (3, 7):
        with sham_device() as seen:
            asked = {"chain": f"ignore_eos=true | {chain}", "max_tokens": tokens}
            requests = [request(c * 5, key=c, **asked) for c in "abcdefgh"]
            outcomes(requests, runner=Wide(), max_batch=8, run_ahead=False)
            counts.append(sum(seen.launches.values()))
    assert (counts[1] - counts[0]) / 4 <= LAUNCHES[chain], chain


@needs_2_13
def test_a_step_launches_no_more_kernels_than_the_table_says():
    for chain in [*LAUNCHES][3::7]:
        check_launches(chain)


def check_model(kind):
    sizes = {"a": 3, "b": 40, "c": 12, "d": 1, "e": 25}
    requests = [request(c * size, key=c, chain=CHAIN, max_tokens=6) for c, size in sizes.items()]
    here = outcomes(requests, runner=HFRunner(build(kind), max_lanes=4), max_batch=3, step_tokens=16)
    with sham_device() as seen:
        runner = HFRunner(on_sham(build(kind)), max_lanes=4)
        seen.clear()  # of what loading tried: it may wait, steps may not
        assert outcomes(requests, runner=runner, max_batch=3, step_tokens=16) == here, kind
    new_cache = ("tensor of host values", "gencli/models/kv/model_calls.py:__call__")
    assert reads(seen), kind
    assert set(seen.waits) == ({new_cache} if kind == "falcon_h1" else set()), kind


def test_prompts_chunks_and_decoding_share_steps_on_a_model():
    check_model("falcon_h1")


class CountingNative(DecoderRunner):
    """A decoder that counts the steps that choose a token."""

    steps = 0

    def forward(self, plan):
        self.steps += bool(plan.num_rows)
        return super().forward(plan)

    def forward_layers(self, plan, layers=(), lanes=(), taps=()):
        self.steps += bool(plan.num_rows)
        return super().forward_layers(plan, layers, lanes, taps)


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


def check_decoder(folder, kind, requests, *, drafter=lambda make: None, allowed=(), **options):
    """Compare both devices; the host waits for each step's tokens, and for nothing else but `allowed`."""

    def make(device):
        return CountingNative.load(saved(folder(kind)), dtype="float32", device=device, max_lanes=12)

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


DECODER_DRAFTERS = {"ngram": lambda make: NgramDrafter(), "model": lambda make: ModelDrafter(make())}


def test_drafts(folder):
    for name, policy in (("ngram", "match"), ("model", "match"), ("model", "rejection")):
        drafting = Drafting(name, 3, verification=Verification(policy))
        stages = ("", " | temperature=0.7 | top_p=0.9", " | repetition=1.3 | top_k=3")
        options = {"drafting": drafting, "max_tokens": 16}
        requests = [request("abcabcdabcaaaa", key=c, chain=LETTERS + c, **options) for c in stages]

        def drafter(make, name=name):
            return AdaptiveDrafter(DECODER_DRAFTERS[name](make), name=name, clock=lambda: 0.0)

        stood = check_decoder(folder, "llama", requests, drafter=drafter, allowed=(READ_DRAFT,))
        assert stood or name == "ngram"


def test_a_draft_model_on_a_stream_of_its_own_on_the_second_of_two_gpus(folder):
    drafting = Drafting("model", 3)
    requests = [request("abcabc", key="drafts", chain=LETTERS, drafting=drafting, max_tokens=12), *texts()]

    def run(device):
        runner, draft = (
            CountingNative.load(saved(folder("llama")), dtype="float32", device=device) for _ in "ab"
        )
        drafter = AdaptiveDrafter(ModelDrafter(run_on_side_stream(draft)), name="model", clock=lambda: 0.0)
        return outcomes(requests, runner=runner, drafter=drafter, max_batch=4, step_tokens=24)

    here = run("cpu")
    with sham_device(Card(), Card()):
        assert run("cuda:1") == here


def test_prompts_in_chunks(folder):
    for kind in ("mixtral", "gpt_oss", "longrope"):  # other tests have a full and a sliding attention
        check_decoder(folder, kind, texts(), max_batch=3, step_tokens=16)


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
    check_decoder(folder, "llama", requests, max_batch=6, step_tokens=24)


def test_guidance_contrasts_of_layers_and_prefixes_beside_others(folder):
    requests = [
        *texts(guidance=Guidance(1.7, tuple(b"cold "), cutoff=0.05)),
        request("abc", key="dola", chain=CHAIN, dola=LayerContrast((1,)), max_tokens=8),
        request("abc", key="plain", chain=CHAIN, max_tokens=8),
    ]
    check_decoder(folder, "gemma3", requests, max_batch=4, step_tokens=24)
    prompt = "a prompt that others begin with " * 3
    requests = [request(prompt + c, key=c, chain=CHAIN, max_tokens=6) for c in "abcd"]
    check_decoder(folder, "qwen3", requests, max_batch=2, step_tokens=64)
