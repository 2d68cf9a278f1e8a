"""Draft heads that scripts/train_heads.py trains: their files, their drafts, runs that are resumed."""

import json
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import inflate
from draft_heads import LAST, DFlash, Eagle3, Medusa, Target, default_taps
from train_heads import Text, batches, main

from gencli import LLM
from tests.speculative import reference_heads

TINY = Path(__file__).parents[1] / "gencli" / "assets" / "tiny"
WIDTH, INNER, VOCABULARY, DRAFTS, STEPS = 160, 64, 2048, 3, 4
IDS = torch.randint(3, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))


def trained(folder, *more, steps=STEPS):
    """Train a few steps on 24 short texts of tiny."""
    sizes = "--texts 24 --length 40 --batch 256 --every 2 --drafts 3".split()
    main([str(folder), *sizes, "--steps", str(steps), *more])
    return folder


def of_eagle(folder, steps=STEPS):
    return trained(folder, "--inner", str(INNER), "--vocabulary", "300", "--dtype", "float32", steps=steps)


@pytest.fixture(scope="module")
def eagle(tmp_path_factory):
    return of_eagle(tmp_path_factory.mktemp("head") / "eagle")


@pytest.fixture(scope="module")
def medusa(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("head") / "medusa", "--kind", "medusa")


@pytest.fixture(scope="module")
def dflash(tmp_path_factory):
    return of_dflash(tmp_path_factory.mktemp("head") / "dflash")


def of_dflash(folder, steps=STEPS):
    return trained(folder, "--kind", "dflash", "--inner", str(INNER), "--dtype", "float32", steps=steps)


@pytest.fixture(scope="module")
def tiny():
    return Target(str(TINY), "cpu")


def stored_eagle(folder, target):
    """Return the stored head as a module."""
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    vocabulary = tensors.pop("d2t") + torch.arange(config["draft_vocab_size"])
    assert tensors.pop("t2d").nonzero()[:, 0].equal(vocabulary)
    head = Eagle3(target, config["eagle_aux_hidden_state_layer_ids"], vocabulary, config["intermediate_size"])
    head.load_state_dict(tensors)
    return head


def stored_dflash(folder, target):
    """Return the stored head as a module."""
    config = json.loads((folder / "config.json").read_text())
    choices, sizes = config["dflash_config"], {"layers": config["num_hidden_layers"], "drafts": DRAFTS}
    taps = [layer + 1 for layer in choices["target_layer_ids"]]
    mask, inner = choices["mask_token_id"], config["intermediate_size"]
    head = DFlash(target, taps, inner, mask=mask, **sizes)
    head.load_state_dict(load_file(folder / "model.safetensors"))
    return head


def test_an_eagle_3_head_has_the_layout_of_the_reference(eagle):
    assert {name: tuple(tensor.shape) for name, tensor in load_file(eagle / "model.safetensors").items()} == {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "midlayer.input_layernorm.weight": (WIDTH,),
        "midlayer.hidden_norm.weight": (WIDTH,),
        "midlayer.post_attention_layernorm.weight": (WIDTH,),
        "midlayer.self_attn.q_proj.weight": (WIDTH, 2 * WIDTH),
        "midlayer.self_attn.k_proj.weight": (WIDTH, 2 * WIDTH),
        "midlayer.self_attn.v_proj.weight": (WIDTH, 2 * WIDTH),
        "midlayer.self_attn.o_proj.weight": (WIDTH, WIDTH),
        "midlayer.mlp.gate_proj.weight": (INNER, WIDTH),
        "midlayer.mlp.up_proj.weight": (INNER, WIDTH),
        "midlayer.mlp.down_proj.weight": (WIDTH, INNER),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (300, WIDTH),
        "d2t": (300,),
        "t2d": (VOCABULARY,),
    }
    config = json.loads((eagle / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 6]
    assert {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "draft_vocab_size": 300,
    }.items() <= config.items()


def test_a_medusa_head_has_the_layout_of_the_reference(medusa, tiny):
    tensors = load_file(medusa / "medusa_lm_head.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        name: shape
        for i in range(DRAFTS)
        for name, shape in {
            f"{i}.0.linear.weight": (WIDTH, WIDTH),
            f"{i}.0.linear.bias": (WIDTH,),
            f"{i}.1.weight": (VOCABULARY, WIDTH),
        }.items()
    }
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert json.loads((medusa / "config.json").read_text())["medusa_num_heads"] == DRAFTS
    states, _ = tiny.read(IDS, [LAST])
    head = Medusa(tiny, DRAFTS)
    head.load_state_dict(tensors)
    wide = {name: tensor.float() for name, tensor in tensors.items()}
    for i, logits in enumerate(head(states, IDS, DRAFTS)):
        given = states[:, : -1 - i]
        block = given + silu(given @ wide[f"{i}.0.linear.weight"].T + wide[f"{i}.0.linear.bias"])
        assert torch.allclose(logits, block @ wide[f"{i}.1.weight"].T, atol=1e-4)


def test_training_drafts_as_a_head_with_a_cache_does(eagle, tiny):
    """Drafts of all entries at once are those of one entry after the other, computed from the file."""
    head, tensors = stored_eagle(eagle, tiny), load_file(eagle / "model.safetensors")
    states, _ = tiny.read(IDS, head.taps)
    embeddings = load_file(TINY / "model.safetensors")["model.embed_tokens.weight"]
    together = head(states, IDS, DRAFTS)

    def normed(given, name):
        return rms_norm(given, (WIDTH,), tensors[f"{name}.weight"], 1e-6)

    def heads(given, name, positions):
        made = (
            (given @ tensors[f"midlayer.self_attn.{name}.weight"].T).view(len(given), 5, 32).transpose(0, 1)
        )
        if name == "v_proj":
            return made
        angles = positions[:, None] * 10_000.0 ** (-torch.arange(0, 32, 2) / 32)
        cos, sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
        return made * cos + torch.cat([-made[..., 16:], made[..., :16]], -1) * sin

    def last_state(features, ids):
        """Return the output of the last of these entries, and its logits."""
        token = normed(embeddings[ids], "midlayer.input_layernorm")
        given = torch.cat([token, normed(features, "midlayer.hidden_norm")], -1)
        query, key, value = (heads(given, f"{kind}_proj", torch.arange(len(ids))) for kind in "qkv")
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1).flatten(1)
        middle = features + mixed @ tensors["midlayer.self_attn.o_proj.weight"].T
        inner = normed(middle, "midlayer.post_attention_layernorm")
        gate, up = (inner @ tensors[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        out = middle + (silu(gate) * up) @ tensors["midlayer.mlp.down_proj.weight"].T
        return out[-1:], normed(out, "norm")[-1] @ tensors["lm_head.weight"].T

    for text, ids in enumerate(IDS):
        for entry in range(len(ids) - 1):
            features = states[text, : entry + 1] @ tensors["fc.weight"].T
            for i in range(min(DRAFTS, len(ids) - 1 - entry)):
                out, logits = last_state(features, ids[1 : entry + 2 + i])
                assert torch.allclose(logits, together[i][text, entry], atol=1e-4), (text, entry, i)
                features = torch.cat([features, out])


def test_a_dflash_head_has_the_layout_and_the_drafts_of_the_reference(dflash, tiny):
    config, tensors = (
        json.loads((dflash / "config.json").read_text()),
        load_file(dflash / "model.safetensors"),
    )
    assert config["architectures"] == ["DFlashDraftModel"]
    assert (config["block_size"], config["num_target_layers"]) == (1 + DRAFTS, 6)
    choices = config["dflash_config"]
    assert choices["target_layer_ids"] == [1, 3, 5]
    head = stored_dflash(dflash, tiny)
    states = {tap: tiny.read(IDS, [tap])[0] for tap in head.taps}
    ends = reference_heads.Target(tiny.embed.weight, tiny.head.weight)
    reference = reference_heads.DFlash(
        tensors,
        ends,
        shape=reference_heads.LayerShape(5, 5, eps=config["rms_norm_eps"]),
        taps=head.taps,
        mask_id=head.mask,
        block_size=1 + DRAFTS,
    )
    together = head(tiny.read(IDS, head.taps)[0], IDS, DRAFTS)
    for text, ids in enumerate(IDS.tolist()):
        known = {tap: rows[text] for tap, rows in states.items()}
        rows = reference.forced(ids, known, DRAFTS)
        for i in range(DRAFTS):
            found = together[i][text, : rows.shape[1]].double()
            assert torch.allclose(found, rows[i], atol=1e-4), (text, i)


@pytest.mark.parametrize("kind", ["eagle", "dflash", "medusa"])
def test_a_trained_head_drafts_and_changes_no_text(kind, request):
    folder = request.getfixturevalue(kind)
    ends = []
    for options in ({}, {"draft": str(folder)}):
        with LLM("tiny", **options) as llm:
            *_, end = llm.stream("Once upon a time", max_tokens=16, seed=1)
            ends.append(end)
    plain, drafted = ends
    assert plain.text == drafted.text
    assert sum(drafted.drafted.proposed) > 0


@pytest.mark.parametrize(("kind", "train"), [("eagle", of_eagle), ("dflash", of_dflash)])
def test_a_resumed_run_equals_an_uninterrupted_one(kind, train, request, tmp_path):
    whole, folder = request.getfixturevalue(kind), train(tmp_path / "head", steps=3)
    main([str(folder), "--resume", "--steps", str(STEPS)])
    once, twice = (load_file(path / "model.safetensors") for path in (whole, folder))
    assert all(once[name].equal(twice[name]) for name in once)
    assert (whole / "config.json").read_text() == (folder / "config.json").read_text()


def test_a_run_is_not_overwritten(eagle, capsys):
    with pytest.raises(SystemExit):
        of_eagle(eagle)
    assert "continue it with --resume" in capsys.readouterr().err


def test_training_lowers_the_loss(tmp_path, capsys):
    text = tmp_path / "texts.txt"
    text.write_text("\n\n".join(f"List: {number} fruits\n- apple\n- banana\n- fig" for number in range(20)))
    main([str(tmp_path / "head"), "--text", str(text), *"--inner 64 --steps 24 --every 8".split()])
    losses = [float(line.split()[3]) for line in capsys.readouterr().out.splitlines() if " loss " in line]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(("kind", "stored"), [("eagle", stored_eagle), ("dflash", stored_dflash)])
def test_an_inflated_head_drafts_for_the_inflated_target_what_the_small_one_does(
    kind, stored, request, tmp_path, tiny
):
    sizes, folder = {"hidden": 320, "intermediate": 500, "layers": 8}, request.getfixturevalue(kind)
    inflate.inflate(TINY, tmp_path / "big", **sizes)
    inflate.inflate_head(folder, tmp_path / "head", **sizes)
    big = Target(str(tmp_path / "big"), "cpu")
    small, large = stored(folder, tiny), stored(tmp_path / "head", big)
    if kind == "dflash":  # a loader checks it
        assert json.loads((tmp_path / "head" / "config.json").read_text())["num_target_layers"] == 8
    for one, other in zip(
        small(tiny.read(IDS, small.taps)[0], IDS, DRAFTS),
        large(big.read(IDS, large.taps)[0], IDS, DRAFTS),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-3)


def test_states_keep_their_numbers_in_the_inflated_target(tmp_path, tiny):
    inflate.inflate(TINY, tmp_path, hidden=320, intermediate=500, layers=8)
    big = Target(str(tmp_path), "cpu")
    for tap in range(9):
        small, large = tiny.read(IDS, [min(tap, 6)])[0], big.read(IDS, [tap])[0]
        assert torch.allclose(small, large[..., :WIDTH], atol=1e-3), tap
        assert not large[..., WIDTH:].any(), tap


def test_taps_are_those_of_transformers(tiny):
    given = tiny.model(IDS, output_hidden_states=True)
    *states, last = given.hidden_states  # transformers gives the last one behind the norm
    for tap, state in [*enumerate(states), (LAST, last)]:
        assert tiny.read(IDS, [tap])[0].equal(state), tap
    assert torch.allclose(tiny.model.model.norm(tiny.read(IDS, [6])[0]), last)


def test_taps_of_a_shallow_model_are_distinct_and_those_of_a_deep_one_are_the_reference_s():
    assert default_taps(32) == [2, 16, 29]
    assert default_taps(6) == [2, 4, 6]
    for layers in range(3, 40):
        taps = default_taps(layers)
        assert len(set(taps)) == 3, layers
        assert 0 < taps[0] < taps[1] < taps[2] <= layers, layers


def test_every_text_is_in_one_batch_of_an_epoch():
    texts = [Text((number,) * (1 + number % 9), 1) for number in range(700)]
    seen, groups = [], batches(texts, 32, seed=1)
    while len(seen) < len(texts):
        group = next(groups)
        assert len(group) * max(len(text.ids) for text in group) <= 32
        seen += group
    assert sorted(seen) == sorted(texts)
    first, again, other = (list(islice(batches(texts, 32, seed), 20)) for seed in (1, 1, 2))
    assert first == again != other
