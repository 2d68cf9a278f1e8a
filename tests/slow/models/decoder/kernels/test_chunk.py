"""Attention of a chunk of a prompt is that of its tokens; on CUDA a kernel of PyTorch takes the chunk."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gencli.models.decoder.kernels.attention import attend_chunk_varlen
from tests.models.decoder.kernels.test_chunk import FED, HEADS, KV_HEADS, LENGTH, WIDTH, parts
from tests.sham import CUDA, sham_device


class Calls(TorchDispatchMode):
    """Notes the operations and their arguments."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append((function._schema.name, args))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize(("window", "sides"), [(0, [-1, 0]), (8, [7, 0])])
def test_the_kernel_for_packed_texts_gets_one_text_without_a_mask(window, sides, has_sinks, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    with sham_device():
        pass  # a build without CUDA has its device guard from here on
    with FakeTensorMode(), Calls() as calls:
        queries = torch.empty(FED, HEADS, WIDTH, dtype=torch.bfloat16, device=CUDA)
        buffer = torch.empty(1, LENGTH, 2 * KV_HEADS, WIDTH, dtype=torch.bfloat16, device=CUDA).transpose(
            1, 2
        )
        sinks = torch.empty(HEADS, device=CUDA) if has_sinks else None
        made = attend_chunk_varlen(queries, *parts(buffer), window, 0.3, 0.0, sinks)
    assert (made.shape, made.dtype) == ((FED, HEADS * WIDTH), torch.bfloat16)
    ((query, key, _, *rest),) = [args for name, args in calls.seen if name == "torch_attn::_varlen_attn"]
    assert (query.shape, key.shape) == ((FED, HEADS, WIDTH), (LENGTH, KV_HEADS, WIDTH))
    assert rest[2:] == [FED, LENGTH, window == 0, 0.3, sides, True, None, None, 1]
    assert [args for name, args in calls.seen if name == "aten::arange"] == [
        (0, FED + 1, FED),
        (0, LENGTH + 1, LENGTH),
    ]
