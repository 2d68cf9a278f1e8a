"""Attention by compiled code: values, and bits that depend on nothing but the token's own keys."""

from itertools import product

import pytest
import torch

from gencli.models.decoder.kernels import attention_llvm, llvm_code
from gencli.models.decoder.kernels.attention_llvm import attend
from gencli.models.decoder.kernels.layer_kernels import Norm, normalize_heads
from gencli.models.rope import rotate
from tests.models.cases import case

pytestmark = pytest.mark.skipif(llvm_code.missing() is not None, reason=f"{llvm_code.missing()}")

CAPACITY = 192


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def filled(row: torch.Tensor, buffer: torch.Tensor, kv_heads: int, width: int) -> None:
    """Write keys and values [2 * Hkv, C, D] to a row of the buffer, whose keys lie in tiles."""
    tiles = row[:kv_heads].view(kv_heads, -1, 64, width).transpose(-1, -2)
    buffer[:kv_heads] = tiles.reshape(kv_heads, CAPACITY, width)
    buffer[kv_heads:] = row[kv_heads:]


def expected(
    token: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rope: tuple[torch.Tensor, torch.Tensor] | None,
    norms: tuple[Norm, Norm] | None,
    window: int | None,
) -> torch.Tensor:
    """The attention of a token [Hq + 2 * Hkv, D] after keys and values [Hkv, P, D], in float64."""
    kv_heads, width = keys.shape[0], keys.shape[2]
    token, heads = token.clone()[None], len(token) - 2 * kv_heads
    if norms is not None:
        normalize_heads(token, heads, kv_heads, norms, is_whole=False)
    if rope is not None:
        rotate(token[:, : heads + kv_heads], *rope)
    queries, key, value = token[0].double().split((heads, kv_heads, kv_heads))
    keys, values = (
        torch.cat([held.double(), new[:, None]], 1) for held, new in ((keys, key), (values, value))
    )
    keys, values = (
        held[:, -(window or 10**9) :].repeat_interleave(heads // kv_heads, 0) for held in (keys, values)
    )
    shares = (torch.einsum("hd,hkd->hk", queries, keys) * width**-0.5).softmax(-1)
    return torch.einsum("hk,hkd->hd", shares, values).flatten()


def test_attention_is_that_of_the_formula_and_keys_and_values_are_stored() -> None:
    positions = torch.tensor([0, 63, 64, 170])
    for (heads, kv_heads, width), rope_width, has_norms, window in product(
        ((4, 2, 32), (3, 1, 64), (2, 2, 256)), (0, 32), (False, True), (None, 1, 70)
    ):
        with case(heads, width, rope_width, has_norms, window):
            held = noise(4, 2 * kv_heads, CAPACITY, width)
            buffer = torch.full_like(held, torch.nan)  # what is not written is not read
            for number, position in enumerate(positions.tolist()):
                row = held[number].clone()
                row[:, position:] = torch.nan
                filled(row, buffer[number], kv_heads, width)
            qkv = noise(4, heads + 2 * kv_heads, width)
            angles = noise(4, 1, rope_width)
            rope = (angles.cos(), angles.sin()) if rope_width else None
            norms = (Norm(noise(width), 1e-5), Norm(noise(width) + 1, 1e-5)) if has_norms else None
            true = torch.stack(
                [
                    expected(
                        qkv[i],
                        held[i, :kv_heads, :position],
                        held[i, kv_heads:, :position],
                        rope and (rope[0][i, None], rope[1][i, None]),
                        norms,
                        window,
                    )
                    for i, position in enumerate(positions.tolist())
                ]
            )
            cells, short = (torch.arange(4), positions), torch.arange(4)
            scale, fed = width**-0.5, qkv.clone()
            mixed = attend(fed, buffer, cells, short, 171, rope, norms, window=window, scale=scale)
            assert (mixed - true).abs().max() < 2e-5 * true.abs().max()
            # Queries and keys are changed in place, and the buffer has them and the values.
            for i, position in enumerate(positions.tolist()):
                keys = buffer[i, :kv_heads].view(kv_heads, -1, width, 64).transpose(-1, -2).flatten(1, 2)
                assert torch.equal(keys[:, position], fed[i, heads : heads + kv_heads])
                assert torch.equal(buffer[i, kv_heads:, position], qkv[i, heads + kv_heads :])


def test_a_token_has_the_same_bits_in_any_company_with_any_threads_and_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads, kv_heads, width = 6, 2, 64
    held, qkv = noise(5, 2 * kv_heads, CAPACITY, width), noise(5, heads + 2 * kv_heads, width)
    positions, angles = torch.tensor([3, 64, 190, 100, 127]), noise(5, 1, width)

    def run(tokens: list[int]) -> torch.Tensor:
        rope = (angles[tokens].cos(), angles[tokens].sin())
        cells = (torch.arange(len(tokens)), positions[tokens])
        norms = (Norm(torch.ones(width), 1e-5), Norm(torch.ones(width), 1e-5))
        short = torch.arange(len(tokens))
        return attend(qkv[tokens], held[tokens], cells, short, 191, rope, norms, window=100, scale=0.125)

    whole = run([0, 1, 2, 3, 4])
    for tokens in ([2], [4, 0], [1, 3, 2]):
        assert torch.equal(run(tokens), whole[tokens])
    threads = torch.get_num_threads()
    try:
        for other in (1, 3):
            torch.set_num_threads(other)
            assert torch.equal(run([0, 1, 2, 3, 4]), whole)
    finally:
        torch.set_num_threads(threads)
    if llvm_code.dot_instructions() == "vnni":
        other_code = attention_llvm.kernel(width, "avx2")
        monkeypatch.setattr(attention_llvm, "kernel", lambda width: other_code)
        assert torch.equal(run([0, 1, 2, 3, 4]), whole)


def test_a_number_that_is_not_finite_stays_with_its_token() -> None:
    held, qkv = noise(2, 2, CAPACITY, 32), noise(2, 3, 32)
    cells, short = (torch.arange(2), torch.tensor([70, 70])), torch.arange(2)

    def run() -> torch.Tensor:
        return attend(qkv.clone(), held.clone(), cells, short, 71, None, None, window=None, scale=1.0)

    whole = run()
    qkv[0, 0, 3] = torch.nan
    mixed = run()
    assert mixed[0].isnan().all()
    assert torch.equal(mixed[1], whole[1])
