"""Drafts of a trained head, from hidden states of the target; the head of a folder or of the target's."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.request import MTP
from gencli.models.model_runner import LAST, HeadedRunner, ModelSpec
from gencli.speculative.draft_model import AutoregressiveDrafter
from gencli.speculative.drafter import Features
from gencli.speculative.head_files import open_head, open_mtp
from gencli.speculative.head_lanes import HeadLanes, MedusaLanes
from gencli.speculative.head_models import MedusaHead, RecursiveHead, read_head


class HeadDrafter(AutoregressiveDrafter):
    """Drafts with a head of a target with this `spec`, for slots below `max_lanes`."""

    _lanes: HeadLanes | MedusaLanes

    def __init__(
        self,
        head: RecursiveHead | MedusaHead,
        spec: ModelSpec,
        *,
        max_lanes: int,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.notices = notices
        if isinstance(head, MedusaHead):
            super().__init__(MedusaLanes(head, spec))
            self.taps = (LAST,)
        else:
            super().__init__(HeadLanes(head, spec, max_lanes=max_lanes))
            self.taps = head.taps

    def feed(self, parts: Sequence[Features]) -> None:
        self._lanes.feed(parts)

    def fork(self, source: int, target: int) -> None:
        self._lanes.fork(source, target)


def load_head(name: str, runner: HeadedRunner, folder: str, *, max_lanes: int) -> HeadDrafter:
    """Return the drafter of the head `name` for the model of a runner, which was loaded from `folder`.

    The name is a folder, or MTP. Raises ModelError for a head that does not fit or is not known in full,
    UsageError for MTP where the folder has no such layers.
    """
    file = open_mtp(folder, runner.spec) if name == MTP else open_head(name, runner.spec)
    return HeadDrafter(read_head(file, runner), runner.spec, max_lanes=max_lanes, notices=file.notices)
