"""The watermark of a run: its options become the last stages of the chain; conflicts with other options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gencli.config.settings import Assigned, Settings
from gencli.errors import UsageError
from gencli.watermark_keys import STAGES, read_key_file
from processors.catalog.watermark import GumbelMarkParams, KgwParams
from processors.chain import Chain
from processors.params import Params
from processors.registry import Registry

__all__ = ["MARKS", "Mark", "refuse_watermark", "wanted_mark", "watermark_notices"]

MARKS = frozenset(stage for stage, _ in STAGES.values())  # stages that only the watermark options set
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Mark:
    """The stage of a watermark, and the origins of its values, with the key as a fingerprint."""

    stage: str
    params: Params
    values: tuple[Assigned, ...]

    def put_into(self, chain: Chain, registry: Registry) -> Chain:
        """Return the chain with the mark: kgw after the ADJUST stages, other watermarks last of all."""
        if self.stage != "kgw":
            return Chain((*chain.stages, (self.stage, self.params)))
        return chain.inserted((self.stage, self.params), registry)


def wanted_mark(settings: Settings) -> Mark | None:
    """Return the watermark of the settings; None without one.

    Raises UsageError, or ConfigError for the key file.
    """
    kind, file, name = settings["watermark"], settings["watermark_key"], settings.name
    named = [stage for stage in settings["chain"] if stage in MARKS]
    if named:
        raise UsageError(
            f"{name('chain')} has {named[0]}, but the place of a watermark is fixed.", hint="Leave it out."
        )
    if kind == _NONE:
        is_newer = settings.rank("watermark_key") >= settings.rank("watermark")
        if file is not None and is_newer:
            raise UsageError(
                f"{name('watermark_key')} is given, but there is no watermark.",
                hint="Add `watermark` = kgw, synthid or gumbel.",
            )
        return None
    if file is None:
        raise UsageError(f"{settings.with_value('watermark')} needs a key.", hint="Add `watermark_key`.")
    params = read_key_file(kind, file)
    if isinstance(params, KgwParams) and params.bias == 0:
        raise UsageError(
            f"The key file of {settings.with_value('watermark')} has the bias 0, which marks nothing.",
            hint="Write another bias into it, or leave it out.",
        )
    stage, origin = STAGES[kind][0], settings.origin("watermark")
    said, rank = settings.said("watermark"), settings.rank("watermark")
    values = (Assigned(stage, key, value, origin, said, rank) for key, value in params.to_mapping().items())
    return Mark(stage, params, tuple(values))


def refuse_watermark(settings: Settings, mark: Mark | None, *, greedy: str) -> None:
    """Raise UsageError for options under which the watermark has no random draw to act on.

    `greedy`: the option or stage that makes the draw greedy, as messages name it; "" if tokens are drawn.
    """
    if mark is None or mark.stage == "kgw":
        return
    said = settings.with_value("watermark")
    hint = "`watermark` = kgw marks such texts too."
    for key in ("beams", "contrastive_alpha"):
        if settings[key]:
            raise UsageError(f"{said} marks drawn tokens, but {settings.name(key)} draws none.", hint=hint)
    if greedy:
        raise UsageError(f"{said} marks drawn tokens, but with {greedy} none is drawn.", hint=hint)
    if not _is_seedless(mark.params):
        return
    for key in ("n", "best_of", "retries"):
        if settings[key] and settings[key] > (key == "n"):
            raise UsageError(
                f"{settings.with_value(key)} draws again, but with {said} the key decides the draw: "
                "the texts would begin alike.",
                hint="Leave one of them out, or write alpha or deduplicate: all into the key file.",
            )


def watermark_notices(chain: Chain) -> Iterator[str]:
    """Yield notices for the user about the watermark in a chain."""
    params = chain.get("gumbel_mark")
    if params is not None and _is_seedless(params):
        yield "The watermark gumbel draws by its key, not by the seed: texts of one prompt begin alike."


def _is_seedless(params: Params) -> bool:
    """Whether the first tokens of a text depend on the key and not on the seed."""
    return isinstance(params, GumbelMarkParams) and params.alpha is None and params.deduplicate != "all"
