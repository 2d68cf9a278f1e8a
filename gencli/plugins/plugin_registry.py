"""The registry of a run: built-in stages and plugins, their list, notices, and the check whether a stage
works with draft tokens. A plugin is imported when a run names its stage; a broken plugin is an error
only then.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from gencli.errors import PluginError
from gencli.plugins.discovery import DRAFTERS, SWITCH, AdapterParams, Plugin, installed_plugins, parse_plugin
from processors.catalog import BUILTIN, Phase, StageSpec
from processors.chain import Chain
from processors.errors import ParamError, UnknownStage
from processors.params import Params
from processors.registry import Registry

if TYPE_CHECKING:
    from gencli.speculative.drafter import Drafter
    from processors.base import Processor


_RENAMED = {"passes": "is_autoregressive", "passes_for": "is_autoregressive_for"}  # renamed attributes


class PluginRegistry(Registry):
    """Built-in stages and plugins. An installed plugin is registered when its name is first used."""

    def __init__(self, installed: Iterable[Plugin] | None = None) -> None:
        super().__init__(BUILTIN)
        self._installed = installed
        self._drafters: dict[str, tuple[str, type[Drafter]]] = {}  # source and class of each drafter, by name

    @functools.cached_property
    def installed(self) -> tuple[Plugin, ...]:
        """The stage plugins of installed packages, read on first use."""
        return installed_plugins() if self._installed is None else tuple(self._installed)

    def spec(self, name: str) -> StageSpec:
        """Return the declaration of a stage. Raises UnknownStage, or PluginError for a broken plugin."""
        if name not in self._specs:
            plugin = next((plugin for plugin in self.installed if plugin.name == name), None)
            if plugin is None:
                raise UnknownStage(name, {*self._specs, *(plugin.name for plugin in self.installed)})
            self.add(plugin)
        return self._specs[name]

    def add(self, plugin: Plugin) -> StageSpec:
        """Import a plugin, check it, and register its stage. Raises PluginError."""
        from gencli.plugins.plugin_loading import load_stage

        return self._register(load_stage(plugin), plugin)

    def take(self, plugin: Plugin) -> None:
        """Import, check and register a plugin, which may be a stage or a drafter. Raises PluginError."""
        from gencli.plugins.plugin_loading import load_plugin
        from gencli.speculative.drafter import Drafter

        kind = load_plugin(plugin)
        if not issubclass(kind, Drafter):
            self._register(kind, plugin)
            return
        for old, new in _RENAMED.items():
            if hasattr(kind, old):
                raise PluginError(
                    f"The drafter {kind.name} in {plugin.source} has {old}, which is now {new}.",
                    hint=f"Rename it: def {new}" if old.endswith("for") else f"Rename it: {new} = True",
                )
        if kind.name in self._drafters:
            self._refuse_two("drafters", kind.name, self._drafters[kind.name][0], plugin.source)
        self._drafters[kind.name] = (plugin.source, kind)

    def take_class(self, stage: type[Processor[Any]]) -> None:
        """Check and register a stage class passed by Python code. Raises PluginError."""
        from gencli.plugins.plugin_loading import check_class

        source = f"{getattr(stage, '__module__', '?')}:{getattr(stage, '__qualname__', repr(stage))}"
        check_class(stage, source)
        self._register(stage, Plugin(source))

    def drafter(self, name: str) -> type[Drafter] | None:
        """Return the class of a drafter from a plugin or an installed package; None if there is none."""
        for plugin in installed_plugins(DRAFTERS) if self._installed is None else ():
            if plugin.name == name:
                self.take(plugin)
        return self._drafters[name][1] if name in self._drafters else None

    def drafters(self) -> dict[str, str]:
        """Return the source of each registered drafter, by name."""
        return {name: source for name, (source, _) in self._drafters.items()}

    def _register(self, stage: type[Processor[Any]], plugin: Plugin) -> StageSpec:
        from gencli.plugins.plugin_loading import check_defaults

        check_defaults(stage, plugin.source)
        name = stage.name
        sources = [self._specs[name].source] if name in self._specs else []
        sources += [other.source for other in self.installed if other.name == name and other is not plugin]
        if sources:
            self._refuse_two("stages", name, sources[0], plugin.source)
        self.register(stage, source=plugin.source)
        return self._specs[name]

    def _refuse_two(self, kinds: str, name: str, first: str, second: str) -> NoReturn:
        raise PluginError(
            f"Two {kinds} have the name {name!r}: one is {first}, the other from {second}.",
            hint=f"Rename one, or leave one out; {SWITCH}=1 disables all installed plugins.",
        )


def make_registry(plugins: Iterable[str | type[Processor[Any]]] = ()) -> PluginRegistry:
    """Return the registry of a run: built-in stages, installed plugins, and the given `plugins`.

    Python code may also pass classes of stages.
    """
    registry = PluginRegistry()
    for plugin in plugins:
        if isinstance(plugin, str):
            registry.take(parse_plugin(plugin))
        else:
            registry.take_class(plugin)
    return registry


@dataclass(frozen=True, slots=True)
class ListedStage:
    """A stage, or a plugin that failed to load with `error` (then `phase` is None)."""

    name: str
    source: str
    phase: Phase | None = None
    sentence: str = ""
    error: str = ""


def list_stages(
    plugins: Iterable[str] = (), registry: PluginRegistry | None = None
) -> tuple[ListedStage, ...]:
    """Return the stages in default order, then the broken plugins."""
    registry = registry or PluginRegistry()
    broken = []
    for plugin in (*registry.installed, *map(parse_plugin, plugins)):
        try:
            registry.add(plugin)
        except PluginError as error:
            stem = plugin.path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
            name = plugin.name or plugin.attribute or stem
            broken.append(ListedStage(name, plugin.source, error=error.message))
    stages = ((name, registry.spec(name)) for name in registry.names())
    return (*(ListedStage(name, s.source, s.phase, sentence(registry, name)) for name, s in stages), *broken)


def sentence(registry: Registry, name: str) -> str:
    """Return a stage's description: the first docstring line of its Params, or of its class."""
    spec = registry.spec(name)
    text = (spec.params.__doc__ or "").strip()
    if not text or text.startswith(f"{spec.params.__name__}("):  # the signature that @dataclass writes
        text = "" if registry.is_builtin(name) else (registry.load(name).__doc__ or "").strip()
    return text.partition("\n")[0]


def plugin_notices(
    active: Collection[str], registry: Registry, *, drafters: Collection[str] = ()
) -> Iterator[str]:
    """Yield a notice for each loaded stage or drafter that is not used, and for each slow stage.

    `active`: stages that are on in the run or in any of its rows. `drafters`: drafters in use.
    """
    loaded = registry.drafters() if isinstance(registry, PluginRegistry) else {}
    for name, source in loaded.items():
        if name not in drafters:
            yield f"The drafter {name} of {source} is not used: add `draft` = {name}."
    for name in registry.names():
        if name not in active and not registry.is_builtin(name):
            source = registry.spec(name).source
            yield f"The stage {name} of {source} is not on: add `stage` = {name}, with its values."
    yield from adapter_notices(active, registry)


def adapter_notices(active: Collection[str], registry: Registry) -> Iterator[str]:
    """Yield a notice for each active stage that adapts a per-row callable."""
    for name in registry.names():
        spec = registry.spec(name)
        if name in active and issubclass(spec.params, AdapterParams):
            yield f"The stage {name} is adapted from {spec.source}: called once for each row, it is slow."


def draft_fault(registry: Registry, name: str, params: Params) -> str:
    """Return the check that the stage fails with draft tokens, for these or example values, or ""."""
    from processors.testing import Subject, examples, run_check
    from processors.testing.checks import drafts_equal_steps

    stage = registry.load(name)
    others: tuple[Params, ...] = ()
    with suppress(ParamError):
        others = examples(stage.Params)
    return run_check(drafts_equal_steps, Subject(stage, (params, *others))).detail


class DraftGuard:
    """Checks each plugin stage once per set of values. Built-in stages need no check."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._checked: set[tuple[str, Params]] = set()
        self._failed: set[str] = set()

    def faults(self, chain: Chain) -> Iterator[tuple[str, str]]:
        """Yield name and fault of each stage of the chain that fails with drafts; each stage once."""
        for name, params in chain:
            is_over = (name, params) in self._checked or name in self._failed
            if is_over or self._registry.is_builtin(name):
                continue
            self._checked.add((name, params))
            if fault := draft_fault(self._registry, name, params):
                self._failed.add(name)
                yield name, fault
