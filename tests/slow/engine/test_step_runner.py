"""What a step costs: operations of the host, kernels of a device, and shapes."""

import pytest
import torch
import transformers as hf

from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.drafter import Drafter, DraftTree
from tests.engine.harness import engine as plain_engine
from tests.engine.harness import request
from tests.engine.test_step_runner import VOCABULARY, Dispatched, steady
from tests.engine.test_step_runner import small_engine as engine
from tests.engine.tree_cases import branched
from tests.models.tiny_models import NATIVE_CONFIGS
from tests.sham import sham_device
from tests.sham_cuda import differences
from tests.slow.engine.test_device import LAUNCHES, Wide, saved
from tests.speculative.cases import WIDTH

# Operations, and passes over all logits, of a step of four rows. Raise a number only for a reason.
OPERATIONS = {"greedy": (13, 5), "default": (20, 7), "temperature, top_p": (20, 7), "four stages": (46, 11)}


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13")
def test_a_step_runs_no_more_operations_than_the_table_says():
    for chain in OPERATIONS:
        on = engine(chain, 4)
        with Dispatched(4 * VOCABULARY) as seen:
            on.step()
        operations, passes = OPERATIONS[chain]
        assert seen.operations <= operations, chain
        assert seen.passes <= passes, chain


class Refused(Drafter):
    """Proposes three tokens for each text, none of which a request may choose."""

    def propose(self, asks):
        return [(98, 98, 98) for _ in asks]


def check_chain(chain):
    with sham_device() as seen:
        assert differences(*steady(seen, Wide(), chain)) == [], chain


def test_chain_and_draw_are_of_constant_shape():
    for chain in [*LAUNCHES][3::7]:
        check_chain(chain)


def decoder(tmp_path, kind):
    """A decoder of a kind on the sham device."""
    torch.manual_seed(1)
    config = NATIVE_CONFIGS[kind]()
    config.vocab_size = WIDTH
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    return DecoderRunner.load(saved(tmp_path), dtype="float32", device="cuda", max_lanes=4)


def check(folder, kind, **options):
    with sham_device() as seen:
        runner = decoder(folder, kind)
        chain = "suppress=[98] | temperature=0" if options else "temperature=0"
        assert differences(*steady(seen, runner, chain, **options)) == [], kind


def test_a_decode_step_of_the_decoder_is_of_constant_shape(tmp_path):
    for kind in ("gemma3", "gpt_oss"):  # sliding windows; a mixture of experts with sinks
        check(tmp_path / kind, kind)


def test_a_step_with_drafts_is_of_constant_shape(tmp_path):
    check(tmp_path, "gpt_oss", drafter=Refused())


def test_a_step_with_drafts_launches_one_operation_more_than_a_plain_one():
    chain = "suppress=[98] | repetition=1.1 | temperature=0.8 | top_p=0.9"
    with sham_device() as seen:
        plain, drafted = (
            steady(seen, Wide(), chain, drafter=drafter)[1].calls for drafter in (None, Refused())
        )
    assert len(drafted) == len(plain) + 1  # the cells of rows with drafts


class Planted(Drafter):
    """Proposes the same tree for each text. `taken` are the tokens that a text goes on with, if any."""

    def __init__(self, *tokens):
        self._tree = DraftTree(tokens, (-1, -1, -1, 0, 0, 1, 3))

    def propose(self, asks):
        return [self._tree for _ in asks]


def test_a_step_with_trees_waits_for_the_device_once_a_round(tmp_path):
    refused = "abcdefg"
    chain = f"suppress={[*refused.encode()]} | allowed={[*b'abcdefgxyz']} | temperature=0"
    with sham_device() as seen:
        runner, launches = decoder(tmp_path, "llama"), []
        for tokens, rounds in ((b"abcdefg", 1), (b"xyzxyzx", 2)):
            on = plain_engine(runner=runner, max_batch=4, run_ahead=False, drafter=Planted(*tokens))
            for key in "abcd":
                asked = request(key * 5, key=key, chain=f"ignore_eos=true | {chain}", max_tokens=60)
                on.submit(*branched([asked], nodes=7))
            for _ in range(8):
                on.step()
            seen.clear()
            on.step()
            assert sum(seen.waits.values()) == rounds, tokens
            launches.append(seen.launches.total())
    assert launches[0] <= 130
