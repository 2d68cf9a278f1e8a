"""Take a model, or one revision of it, out of the hub's cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from gencli.errors import ModelError
from gencli.hub.cache import alone, disk_bytes, find_snapshot, hub_cache, place_of
from gencli.hub.names import HubName

__all__ = ["Removal", "plan_removal"]


@dataclass(frozen=True, slots=True)
class Removal:
    """What is to go: the bytes that become free, and the deed."""

    freed: int
    execute: Callable[[], None]


def plan_removal(name: HubName, *, is_whole: bool) -> Removal:
    """Return all that the cache has of a model, or one revision. Raises ModelError for what is not there."""
    from huggingface_hub import scan_cache_dir

    place = place_of(name)
    if place.is_symlink() or not place.is_dir():
        raise ModelError(f"{name} is not in {hub_cache()}.", hint="gencli models list names what is.")
    scan = scan_cache_dir(hub_cache())
    if is_whole:
        mine = (repo for repo in scan.repos if repo.repo_path.resolve() == place.resolve())
        commits = [revision.commit_hash for repo in mine for revision in repo.revisions]
    else:
        folder = find_snapshot(name)
        commits = [folder.name] if folder else []
        if folder is None:
            raise ModelError(f"{name} is not in {hub_cache()}.", hint="gencli models list names what is.")
    # The library knows what revisions and models share, and nothing of downloads that are not complete.
    strategy = scan.delete_revisions(*commits)

    def execute() -> None:
        with alone(name):
            strategy.execute()
            if is_whole:
                shutil.rmtree(place, ignore_errors=True)
        if is_whole and place.exists():
            raise ModelError(f"{place} cannot be removed.", hint="Is it yours?")

    freed: int = strategy.expected_freed_size
    return Removal(max(freed, disk_bytes(place)) if is_whole else freed, execute)
