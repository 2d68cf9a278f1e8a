"""The references of draft heads: their recursion, and that each slip in a forward pass shows in the logits.

tests/slow/speculative/test_head_references.py compares them with transformers.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from tests.speculative.odd_heads import DAMAGED, REFUSED, small, write_hostile
from tests.speculative.reference_heads import LAST, Recursive
from tests.speculative.tiny_heads import (
    DFLASH,
    EAGLE1,
    EAGLE3,
    EPS,
    HEADS,
    MEDUSA,
    THETA,
    Shape,
    medusa,
)
from tests.speculative.tiny_targets import MTP, tiny_target

SHAPE = Shape()
IDS = torch.randint(0, SHAPE.vocab, (24,), generator=torch.Generator().manual_seed(1)).tolist()
IDS, LONG = IDS[:9], IDS
VISIBLE = 1e-3  # a difference that a comparison within 1e-5 cannot miss
RECURSIVE = [*EAGLE1, *EAGLE3, *MTP]


@cache
def target():
    return tiny_target("llama", SHAPE)


@cache
def target_states():
    return target().states(LONG)


@cache
def head(name):
    return HEADS[name](SHAPE)


@cache
def mtp(name):
    return MTP[name](Shape(layers=2))


@cache
def case(name):
    """A reference and the states of its target."""
    if name in MTP:
        return mtp(name).reference(), mtp(name).target.states(LONG)
    return head(name).reference(target().shared), target_states()


def depth_of(reference, most=4):
    return min(reference.depth or most, most)


def difference(one, other):
    """The largest difference of logits; where one of both is -inf, as if it were large."""
    gap = torch.where(one.isfinite() & other.isfinite(), (one - other).abs(), 1e3)
    return float(torch.where(one == other, 0.0, gap).max())


def change(name, states=None, **changes):
    """How much the forced logits of drafts move with other states, weights or settings."""
    reference, own = case(name)
    made = mtp(name) if name in MTP else head(name)
    other = made.reference(**changes) if name in MTP else made.reference(target().shared, **changes)
    depth = depth_of(reference)
    return difference(reference.forced(IDS, own, depth), other.forced(IDS, states or own, depth))


@pytest.mark.parametrize("name", RECURSIVE)
def test_the_recursion_is_one_pass_over_its_own_features(name):
    reference, states = case(name)
    assert isinstance(reference, Recursive)
    drafts, logits = reference.draft(IDS, states, 4)
    assert drafts == logits.argmax(-1).tolist()
    if reference.num_layers > 1:
        return
    known = len(IDS) - 1
    ids, features = torch.tensor([*IDS[1:], *drafts]), reference.condense(states)[:known]
    for i in range(4):
        output, _ = reference.step(ids[: known + i], features)
        features = torch.cat((features, output[-1:]))
    _, whole = reference.step(ids, features)
    assert difference(whole[known - 1 : -1], logits) < 1e-12


@pytest.mark.parametrize("name", RECURSIVE)
def test_a_forced_row_is_the_first_draft_of_its_prefix(name):
    reference, states = case(name)
    _, whole = reference.step(torch.tensor(IDS[1:]), reference.condense(states)[: len(IDS) - 1])
    rows = reference.forced(IDS, states)[0]
    assert difference(rows, whole) < 1e-12
    assert difference(rows[4], reference.draft(IDS[:6], states, 1)[1][0]) == 0.0


@pytest.mark.parametrize("name", [name for name in MTP if "two layers" in name])
def test_drafts_of_several_layers_read_the_layer_before(name):
    reference, states = case(name)
    drafts, logits = reference.draft(IDS, states, 2)
    known = len(IDS) - 1
    output, first = reference.step(torch.tensor(IDS[1:]), reference.condense(states)[:known])
    _, second = reference.step(torch.tensor([*IDS[2:], drafts[0]]), output, layer=1)
    assert difference(torch.stack((first[-1], second[-1])), logits) < 1e-12


@pytest.mark.parametrize("name", [*HEADS, *MTP])
def test_logits_along_given_drafts_are_those_of_the_text_with_them(name):
    reference, states = case(name)
    depth = depth_of(reference)
    forced = reference.forced(IDS, states, depth)
    assert forced.shape == (depth, len(IDS) - depth, SHAPE.vocab)
    along = reference.along(IDS[:6], states, IDS[6 : 5 + depth])
    assert difference(forced[:, 4], along) == 0.0


@pytest.mark.parametrize("name", [*HEADS, *MTP])
def test_drafts_vary_and_logits_are_of_ordinary_size(name):
    reference, states = case(name)
    forced = reference.forced(LONG, states)[0]
    assert len(set(forced.argmax(-1).tolist())) > 3
    assert 0.3 < float(forced[forced.isfinite()].std()) < 4
    best = forced.topk(2).values
    assert float((best[:, 0] - best[:, 1]).min()) > 2e-5  # logits within 1e-5 have the same tokens


@pytest.mark.parametrize("name", [*EAGLE3, *DFLASH])
def test_a_draft_vocabulary_leaves_all_other_tokens_at_minus_infinity(name):
    reference, states = case(name)
    row = reference.forced(IDS, states)[0, 0]
    d2t = head(name).tensors.get("d2t")
    if d2t is None:
        assert row.isfinite().all()
        return
    ids = d2t + torch.arange(len(d2t))
    assert row[ids].isfinite().all()
    assert row.isfinite().sum() == len(ids) == SHAPE.vocab // 2
    assert (d2t != d2t[0]).any()


@pytest.mark.parametrize("name", HEADS)
def test_a_missing_norm_or_bias_changes_the_logits(name):
    for part in head(name).weights:
        if "norm" in part or part.endswith("bias"):
            rest = {key: weight for key, weight in head(name).weights.items() if key != part}
            assert change(name, weights=rest) > VISIBLE, part


@pytest.mark.parametrize("name", MTP)
def test_a_missing_norm_of_mtp_changes_the_logits(name):
    for part in mtp(name).weights:
        if "norm" in part:
            rest = {key: weight for key, weight in mtp(name).weights.items() if key != part}
            assert change(name, weights=rest) > VISIBLE, part


@pytest.mark.parametrize("name", [*EAGLE3, *DFLASH])
def test_taps_of_other_layers_change_the_logits(name):
    taps = case(name)[0].taps
    if taps == (LAST,):
        return
    for by in (1, -1):
        assert change(name, taps=tuple(max(tap + by, 0) for tap in taps)) > VISIBLE
    for i, tap in enumerate(taps):
        assert change(name, taps=(*taps[:i], tap + 1, *taps[i + 1 :])) > VISIBLE
    if len(taps) > 1:
        assert change(name, taps=taps[::-1]) > VISIBLE


@pytest.mark.parametrize("name", [*EAGLE1, *MEDUSA, *MTP, "eagle3 without taps"])
def test_states_before_the_final_norm_change_the_logits(name):
    states = case(name)[1]
    assert change(name, states=states | {LAST: states[max(states)]}) > VISIBLE


@pytest.mark.parametrize("name", [*EAGLE1, *EAGLE3, *DFLASH])
def test_the_eps_and_theta_of_the_target_change_the_logits(name):
    shape = head(name).settings["shape"]
    assert (shape.eps, shape.theta) == (EPS, THETA)
    assert change(name, shape=replace(shape, eps=1e-6)) > VISIBLE / 10
    assert change(name, shape=replace(shape, theta=10000.0)) > VISIBLE


@pytest.mark.parametrize(
    "name", [name for name in HEADS if "embed_tokens.weight" in HEADS[name](SHAPE).weights]
)
def test_the_embedding_of_the_target_changes_the_logits(name):
    weights = head(name).weights
    if weights["embed_tokens.weight"].shape[1] == SHAPE.hidden:
        other = weights | {"embed_tokens.weight": target().shared.embedding}
        assert change(name, weights=other) > VISIBLE


@pytest.mark.parametrize("name", EAGLE3)
def test_the_switches_of_eagle3_change_the_logits(name):
    reference, _ = case(name)
    assert change(name, norm_before_residual=not reference.norm_before_residual) > VISIBLE
    assert change(name, norm_output=not reference.norm_output) > VISIBLE


@pytest.mark.parametrize("name", DFLASH)
def test_how_a_block_is_read_changes_the_logits(name):
    reference, _ = case(name)
    if not all(reference.windows):  # layers with windows are causal in any case
        assert change(name, is_causal=not reference.is_causal) > VISIBLE
    assert change(name, samples_anchor=not reference.samples_anchor) > VISIBLE
    assert change(name, block_size=reference.block_size - 1) > VISIBLE or reference.is_causal
    assert change(name, shift=1) > VISIBLE
    assert change(name, mask_id=0) > VISIBLE
    if any(reference.windows):
        assert change(name, windows=[None] * len(reference.windows)) > VISIBLE
    if reference.markov is not None:
        assert change(name, markov=None) > VISIBLE


@pytest.mark.parametrize("name", MTP)
def test_the_order_and_the_feedback_of_mtp_change_the_logits(name):
    assert change(name, hidden_first=not case(name)[0].hidden_first) > VISIBLE
    assert change(name, feeds_before_norm=True) > VISIBLE


@pytest.mark.parametrize("name", MEDUSA)
def test_medusa_reads_the_newest_state_alone(name):
    reference, states = case(name)
    rest = {LAST: torch.cat((torch.zeros(len(IDS) - 2, SHAPE.hidden), states[LAST][len(IDS) - 2 :]))}
    assert torch.equal(reference.along(IDS, states, [1, 2]), reference.along([0] * len(IDS), rest, [3, 4]))
    assert reference.depth == 4


@pytest.mark.parametrize("name", HEADS)
def test_a_folder_has_the_tensors_and_twice_the_same(name, tmp_path):
    folder = head(name).write(tmp_path / "head")
    path = folder / head(name).file
    read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
    again = HEADS[name](SHAPE)
    assert read.keys() == again.tensors.keys()
    assert all(torch.equal(read[key], again.tensors[key]) for key in read)


@pytest.mark.parametrize("name", [*REFUSED, *DAMAGED])
def test_what_has_to_be_refused_can_be_written(name, tmp_path):
    made = REFUSED[name](SHAPE) if name in REFUSED else DAMAGED[name][0](SHAPE)
    folder = made.write(tmp_path / "head")
    assert {path.name for path in folder.iterdir()} == {"config.json", made.file}
    if name in DAMAGED:
        whole = medusa(SHAPE) if "medusa" in name else small(SHAPE)
        same = made.tensors.keys() == whole.tensors.keys() and all(
            torch.equal(made.tensors[key], whole.tensors[key]) for key in made.tensors
        )
        assert not same or made.config != whole.config


@pytest.mark.parametrize("name", ["eagle1", "medusa"])
def test_a_hostile_file_runs_code_unless_weights_alone_are_read(name, tmp_path):
    marker = tmp_path / "ran"
    folder = write_hostile(tmp_path / "head", head(name), marker)
    with pytest.raises(Exception, match="weights_only|Unsupported|global"):
        torch.load(folder / head(name).file, weights_only=True)
    assert not marker.exists()
    with torch.serialization.safe_globals([]):
        torch.load(folder / head(name).file, weights_only=False)["hostile"].close()
    assert marker.exists()
