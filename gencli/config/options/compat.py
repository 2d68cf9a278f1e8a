"""The names of compat profiles, for the table in gencli.config.options.run. Imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

from gencli.config.options.option import Option

__all__ = ["COMPAT", "READS_MODEL", "Compat", "profiles"]

Compat = Literal[
    "llama-cpp",
    "llama-cpp-mirostat",
    "hf",
    "vllm",
    "vllm-v2",
    "sglang",
    "tgw",
    "tgw-hijack",
    "koboldcpp",
    "koboldcpp-mirostat",
    "exl2",
    "exl3",
    "mlx",
    "aphrodite",
]
# Systems that prefer the values of a model's generation_config.json to their own; it overrides these
# profiles.
READS_MODEL: frozenset[str] = frozenset(("hf", "vllm", "vllm-v2", "sglang", "aphrodite"))


def profiles() -> tuple[str, ...]:
    """Return the names of all profiles."""
    return get_args(Compat)


COMPAT: tuple[Option, ...] = (
    Option(("--compat",), Compat, "The order and the values of another system's chain, below all that you "
           f"set; what it cannot reproduce is said on stderr: {', '.join(profiles())}.", "Presets",
           metavar="NAME"),
)  # fmt: skip
