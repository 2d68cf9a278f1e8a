"""From the name of a model to its runner and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gencli.errors import ModelError, UsageError
from processors.errors import nearest

if TYPE_CHECKING:
    from gencli.models.base import ModelRunner
    from gencli.tokenizer import Tokenizer

__all__ = ["BUNDLED", "Loaded", "ModelChoice", "load"]

BUNDLED = ("tiny", "tiny-draft", "fake")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model, and how it is to be loaded."""

    name: str = "tiny"
    dtype: str = "auto"
    device: str = "auto"
    max_batch: int = 8
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to run."""

    runner: ModelRunner
    tokenizer: Tokenizer


def load(choice: ModelChoice) -> Loaded:
    """Load a bundled model, a folder, or a hub name from the local cache."""
    if choice.name == "fake":
        return _load_fake(choice)
    from gencli.models.hf import HFRunner
    from gencli.tokenizer import HFTokenizer

    place = _place(choice.name)
    # The tokenizer is quick to load and the weights are not, so its errors come first.
    tokenizer = HFTokenizer.load(place, trust_remote_code=choice.trust_remote_code)
    runner = HFRunner.load(
        place,
        dtype=choice.dtype,
        device=choice.device,
        max_lanes=choice.max_batch,
        trust_remote_code=choice.trust_remote_code,
    )
    return Loaded(runner, tokenizer)


def _place(name: str) -> str:
    """What transformers is to load; ModelError for a name that nothing has."""
    if name in BUNDLED:
        return str(files("gencli") / "assets" / name)
    path = Path(name).expanduser()
    if path.exists():
        return str(path)
    if _is_cached(name):
        return name
    raise ModelError(
        f"There is no model {name!r}: no folder has this path, and the hub's cache does not hold it.",
        hint=f"{nearest(name, BUNDLED)} Nothing is downloaded; `hf download NAME` fills the cache.",
    )


def _is_cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except ValueError:  # not a name that the hub could have
        return False


def _load_fake(choice: ModelChoice) -> Loaded:
    from gencli.models.fake import FakeRunner
    from gencli.tokenizer import ByteTokenizer

    fixed: Mapping[str, tuple[str, tuple[str, ...]]] = {
        "--dtype": (choice.dtype, ("auto", "float32")),
        "--device": (choice.device, ("auto", "cpu")),
    }
    for flag, (value, possible) in fixed.items():
        if value not in possible:
            raise UsageError(f"{flag} is {value}, but the fake model knows only {' and '.join(possible)}.")
    tokenizer = ByteTokenizer()
    runner = FakeRunner(tokenizer.vocab_size, max_lanes=choice.max_batch, eos_ids=tokenizer.eos_ids)
    return Loaded(runner, tokenizer)
