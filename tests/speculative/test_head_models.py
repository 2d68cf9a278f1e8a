"""Logits of draft heads equal those of references without a cache, however the text was fed."""

from dataclasses import replace

import pytest
import torch

from gencli.core.request import Feed
from gencli.models.decoder.attention_plans import device_plan
from gencli.models.decoder.decoder_layers import Pass
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.speculative import head_models
from gencli.speculative.head_drafter import HeadDrafter
from gencli.speculative.head_files import open_head
from gencli.speculative.head_models import FeaturePass, read_head
from tests.speculative.head_cases import KINDS, SHAPE, Drafts, TensorTarget, admit
from tests.speculative.tiny_heads import DFLASH, eagle3

TEXT = torch.randint(0, SHAPE.vocab, (45,), generator=torch.Generator().manual_seed(3)).tolist()
PATH = [5, 77, 11]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_the_reference_however_the_text_was_fed(kind, tmp_path):
    drafts, known = Drafts.of(kind, tmp_path), len(TEXT) - 1
    path = PATH[: drafts.depth - 1]
    admit(drafts.drafter, 0, 1)
    drafts.feed([(0, TEXT, 0, known)])
    for start, end in ((0, 1), (1, 20), (20, 21), (21, known)):
        drafts.feed([(1, TEXT, start, end)])
    found, wanted = drafts.logits(dict.fromkeys((0, 1), (TEXT, path))), drafts.expected(TEXT, path)
    for logits in found.values():
        torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(missing() is not None, reason="no compiled kernels")
@pytest.mark.parametrize("kind", ["eagle1", "eagle3 narrow", "medusa", "deepseek llama", "dflash"])
def test_the_matrices_of_a_large_head_have_8_bits(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(head_models, "_MIN_ROUNDED", 1)
    drafts = Drafts.of(kind, tmp_path)
    admit(drafts.drafter, 0)
    drafts.feed([(0, TEXT, 0, len(TEXT) - 1)])
    path = PATH[: drafts.depth - 1]
    logits, wanted = drafts.logits({0: (TEXT, path)})[0], drafts.expected(TEXT, path)
    near = wanted.isfinite()
    assert near.equal(logits.isfinite())
    error = (logits - wanted)[near].norm() / wanted[near].norm()
    assert 1e-4 < error < 0.05


@pytest.mark.parametrize("kind", DFLASH)
def test_a_slip_in_reading_a_block_shows_in_the_logits(kind, tmp_path):
    drafts, known = Drafts.of(kind, tmp_path), len(TEXT) - 1
    head, wanted = read_head(drafts.file, drafts.target), drafts.expected(TEXT, PATH)
    slips = [
        {"taps": tuple(tap + 1 for tap in head.taps)},
        {"taps": tuple(tap - 1 for tap in head.taps)},
        {"samples_anchor": not head.samples_anchor},
        {"mask_id": head.mask_id - 1},
        {"block_size": head.block_size + 1},
        {"is_causal": not head.is_causal},
    ]
    for slip in [{}, *slips]:
        drafts.drafter = HeadDrafter(replace(head, **slip), drafts.target.spec, max_lanes=1)
        admit(drafts.drafter, 0)
        drafts.feed([(0, TEXT, 0, known)])
        found = drafts.logits({0: (TEXT, PATH)})[0]
        near = found.isfinite() & wanted.isfinite()
        difference = float((found - wanted)[near].abs().max())
        # More masks behind those that are drafted from are not seen where attention is causal.
        is_same = not slip or (head.is_causal and "block_size" in slip)
        assert (difference < 1e-5) if is_same else (difference > 1e-3), slip


def test_a_copy_of_the_embedding_takes_no_memory(tmp_path):
    target, head = TensorTarget(), eagle3(SHAPE, own_embedding=True)
    copy = replace(head, tensors=head.tensors | {"embed_tokens.weight": target.ends.embedding})
    for number, (folder, is_shared) in enumerate(((head, False), (copy, True))):
        file = open_head(str(folder.write(tmp_path / str(number))), target.spec)
        assert (read_head(file, target).parts[0].embed == target.embed) is is_shared


@pytest.mark.parametrize("kind", ["eagle1", "eagle3", "eagle3 of two layers", "deepseek qwen3_moe"])
@pytest.mark.parametrize("length", [9, 40])
@torch.inference_mode()
def test_logits_equal_the_reference_with_the_plan_of_a_gpu(kind, length, tmp_path):
    drafts, text = Drafts.of(kind, tmp_path), TEXT[: length + 1]
    head = read_head(drafts.file, drafts.target)
    part, spec = head.parts[0], head.parts[0].spec
    states = drafts.target.states(text[:-1], head.taps)
    features = head.condense(tuple(states[tap] for tap in head.taps))
    cells = torch.zeros(length, dtype=torch.int64), torch.arange(length)
    plan = device_plan([Feed(0, 0, tuple(text[1:]))], cells, 256, is_fixed=True)
    step = Pass(plan, tuple(table.rows(cells[1], None, length) for table in part.tables))
    buffers = [torch.zeros(1, 2 * spec.num_kv_heads, 256, spec.head_dim) for _ in part.layers]
    inside = FeaturePass({}, {}, features=features)
    logits = part(torch.tensor(text[1:]), step, buffers, torch.tensor([length - 1]), inside)
    torch.testing.assert_close(logits, drafts.expected(text, []), rtol=1e-5, atol=1e-5)
    assert inside.made.shape == (1, head.width)
