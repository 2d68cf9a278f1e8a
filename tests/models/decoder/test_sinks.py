"""The share of a sink, in all its forms."""

import torch

from gencli.models.decoder.kernels.attention import reduced, shares

SINKS = torch.tensor([0.5, -3.0, 90.0])


def test_shares_and_the_share_of_the_sink_are_one_in_all() -> None:
    scores = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(1)) * 4
    scores[0, :, 5:] = -torch.inf  # hidden keys
    found = shares(scores, SINKS[:, None])
    whole = scores.exp().sum(-1, keepdim=True) + SINKS[:, None].exp()
    torch.testing.assert_close(found, scores.exp() / whole)
    assert torch.equal(shares(scores, None), scores.softmax(-1))


def test_attention_that_had_no_sinks_is_reduced_by_their_shares() -> None:
    noise = torch.Generator().manual_seed(2)
    scores, values = torch.randn(3, 4, 7, generator=noise), torch.randn(3, 7, 5, generator=noise)
    plain, expected = (
        (shares(scores, sinks) @ values).transpose(0, 1) for sinks in (None, SINKS[:, None, None])
    )
    torch.testing.assert_close(reduced(plain, scores.logsumexp(-1), SINKS), expected)
    assert reduced(plain.bfloat16(), scores.logsumexp(-1), SINKS).dtype == torch.bfloat16
