"""Sequences as the scheduler and what it owns see them: tokens, a slot, and how many are computed."""

from gencli.core.request import Request
from gencli.engine.sequence import Sequence
from gencli.text.text_stream import StopRules, TextStream
from gencli.text.tokenizer import ByteTokenizer


def sequence(prompt, *, output=(), slot=-1, computed=None, **rest):
    """A sequence whose lane holds all tokens but the last, or `computed` ones; `rest` is of the request."""
    one = Request("r", tuple(prompt), **rest)
    stream = TextStream(ByteTokenizer().stream(), StopRules())
    size = len(prompt) + len(output) - 1 if computed is None else computed
    return Sequence(
        one, 0, 0, stream, 0.0, context=1024, slot=slot, num_computed_tokens=size, output=list(output)
    )
