"""`Registry`: stages by name. The code of a stage is imported on first use."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from processors.catalog import BUILTIN
from processors.errors import ChainError, UnknownStage
from processors.params import Phase, StageSpec

if TYPE_CHECKING:
    from processors.base import Processor


class Registry:
    """An ordered set of stages. Default order: by phase, then by registration."""

    def __init__(self, specs: tuple[StageSpec, ...] = ()) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._classes: dict[str, type[Processor[Any]]] = {}

    def register(self, stage: type[Processor[Any]], *, source: str = "") -> None:
        """Add a stage class and its source. ChainError names both stages if the name is taken."""
        target = f"{stage.__module__}:{stage.__qualname__}"
        if stage.name in self._specs:
            taken = self._specs[stage.name].target
            raise ChainError(f"Two stages want the name {stage.name!r}: {taken} and {target}. Rename one.")
        self._specs[stage.name] = StageSpec(stage.name, stage.phase, stage.Params, target, source or target)
        self._classes[stage.name] = stage

    def spec(self, name: str) -> StageSpec:
        """Return the declaration of a stage. UnknownStage if there is none."""
        try:
            return self._specs[name]
        except KeyError:
            raise UnknownStage(name, self._specs) from None

    def __contains__(self, name: str) -> bool:
        try:
            self.spec(name)
        except UnknownStage:
            return False
        return True

    def load(self, name: str) -> type[Processor[Any]]:
        """Return the class of a stage, imported on first use."""
        if name not in self._classes:
            module, _, attribute = self.spec(name).target.partition(":")
            self._classes[name] = getattr(import_module(module), attribute)
        return self._classes[name]

    def is_builtin(self, name: str) -> bool:
        """Whether the stage ships with the library."""
        return self.spec(name) in BUILTIN

    def names(self) -> tuple[str, ...]:
        """Return all names in default order: by phase, then by registration."""
        return tuple(spec.name for spec in sorted(self._specs.values(), key=lambda spec: spec.phase))

    def place(self, names: Sequence[str], stage: str) -> int:
        """Return the index in `names` where a stage is inserted: after all that come before it by default."""
        order = self.names()
        rank = order.index(stage)
        return max((at for at, name in enumerate(names, 1) if order.index(name) < rank), default=0)

    def phase(self, name: str) -> Phase:
        return self.spec(name).phase


def twice(name: str, where: str, registry: Registry) -> ChainError:
    """Return the error for a stage that is named twice: a chain holds one set of parameters per stage."""
    params = registry.spec(name).params
    advice = "with all its values in one list" if params.is_list() else "with one set of values"
    return ChainError(
        f"The stage {name} stands twice in the {where}. Name it once, {advice}; to run it once more with "
        "other values, give each a condition (docs/presets.md), or those to a subclass with another name "
        "(docs/plugins.md)."
    )


@functools.cache
def builtin_registry() -> Registry:
    return Registry(BUILTIN)
