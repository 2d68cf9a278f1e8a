"""A draft of another vocabulary for the fake model: the same bytes and bigrams, with all ids turned round."""

import torch

from gencli.speculative.draft_model import TextModelDrafter
from gencli.speculative.translation import Translation
from gencli.text.tokenizer import ByteTokenizer

ORDER = [*range(255, -1, -1), 257, 256]  # by id of a byte or marker, its id in the other vocabulary


class Turned(ByteTokenizer):
    """Ids 255-0 are bytes, 256 is <eos>, 257 is <bos>."""

    eos_ids = (256,)
    bos_id = 257
    token_bytes = (*(bytes([byte]) for byte in range(255, -1, -1)), b"", b"")

    def encode(self, text, *, special=True):
        return [255 - byte for byte in text.encode()]

    def decode(self, ids, *, skip_special=True):
        return super().decode([ORDER[token] for token in ids], skip_special=skip_special)


def turned(runner):
    """A drafter through text whose model is this one of bytes, with ids of its own."""
    order = torch.tensor([*ORDER, *range(len(ORDER), len(runner.table))])
    runner.table = runner.table[order][:, order]
    return TextModelDrafter(runner, Translation(ByteTokenizer(), Turned(), names=("fake", "turned")))


__all__ = ["ORDER", "Turned", "turned"]
