"""The planned memory of a model is what it takes; a model that cannot fit is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.weight_readers import Embeddings
from gencli.models.device import free_memory
from gencli.models.files.model_card import Weights, read_card
from gencli.models.model_memory import check_fit
from tests.models.cases import case
from tests.models.tiny_models import build_native

CPU = torch.device("cpu")


def parts(value: Any) -> Iterator[int]:
    """The bytes of all weights in a decoder, as they lie in memory."""
    if isinstance(value, torch.Tensor | Product | Embeddings):
        yield value.nbytes
    elif isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif is_dataclass(value):
        for each in fields(value):
            if each.name not in ("spec", "tables"):
                yield from parts(getattr(value, each.name))


def huge(folder: Path) -> Any:
    build_native("llama").save_pretrained(folder)
    return replace(read_card(folder), weights=Weights(2**33, 2**31, "F32"))


def test_a_model_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    for free, hint in [
        (2**32 + 2**20, "`dtype` = bfloat16 (4.0 GiB) or `quantize` = int8 (2.0 GiB) or `quantize` = int4"),
        (2**31, "`quantize` = int4 (1.3 GiB) fits; `memory_check` = off tries anyway"),
        (2**30, "A smaller model fits"),
    ]:
        with case(free, hint):
            card = huge(tmp_path)
            with pytest.raises(
                ModelError, match=r"needs 8.0 GiB .* float32 .* has [124].0 GiB free"
            ) as found:
                check_fit(card, torch.float32, CPU, free)
            assert hint in (found.value.hint or "")
            check_fit(card, torch.float32, CPU, 2**33 + 2**20)
            check_fit(card, torch.float32, CPU, None)


def test_a_card_that_is_too_small_is_told_which_codes_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs 4.0 GiB .* bfloat16 .* cuda has 2.5 GiB free") as found:
        check_fit(huge(tmp_path), torch.bfloat16, torch.device("cuda"), 5 * 2**29)
    assert (found.value.hint or "").startswith(
        "`quantize` = int8 (2.0 GiB) or `quantize` = int4 (1.3 GiB) fits"
    )


def group(folder: Path, **values: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def test_free_memory_is_the_least_of_the_machine_and_the_groups(tmp_path: Path) -> None:
    group(tmp_path / "proc/self", cgroup="0::/a/b")
    group(tmp_path / "proc", meminfo="MemTotal: 9 kB\nMemAvailable:    1000 kB")
    assert free_memory(CPU, tmp_path) == 1_024_000
    stat = "anon 5\nactive_file 100\ninactive_file 50\n"
    group(tmp_path / "sys/fs/cgroup/a/b", memory__max="max", memory__current=4, memory__stat=stat)
    assert free_memory(CPU, tmp_path) == 1_024_000
    group(tmp_path / "sys/fs/cgroup/a", memory__max=9000, memory__current=4000, memory__stat=stat)
    assert free_memory(CPU, tmp_path) == 9000 - 4000 + 150
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/x\n1:name=y:/x\n")
    assert free_memory(CPU, tmp_path) == 1_024_000
    group(
        tmp_path / "sys/fs/cgroup/memory/x",
        memory__limit_in_bytes=7000,
        memory__usage_in_bytes=6000,
        memory__stat="active_file 7\ntotal_active_file 100\ntotal_inactive_file 50",
    )
    assert free_memory(CPU, tmp_path) == 1150


def test_this_machine_says_what_is_free(tmp_path: Path) -> None:
    for free in (free_memory(CPU), free_memory(CPU, tmp_path)):  # the second without files of the kernel
        assert free is None or free > 2**20
