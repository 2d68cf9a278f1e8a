"""Remove a model, or one revision of it, from the hub's cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from gencli.errors import ModelError
from gencli.hub.cache import disk_bytes, find_snapshot, hub_cache, repository_folder, repository_lock
from gencli.hub.names import HubName

__all__ = ["Removal", "plan_removal"]


@dataclass(frozen=True, slots=True)
class Removal:
    """A planned removal: the bytes that it frees, and the function that executes it."""

    freed: int
    execute: Callable[[], None]


def plan_removal(name: HubName, *, is_whole: bool) -> Removal:
    """Plan the removal of a whole model, or of one revision. Raises ModelError if it is not in the cache."""
    from huggingface_hub import scan_cache_dir

    repository = repository_folder(name)
    if repository.is_symlink() or not repository.is_dir():
        raise ModelError(f"{name} is not in {hub_cache()}.", hint="gencli models list shows the models.")
    scan = scan_cache_dir(hub_cache())
    if is_whole:
        mine = (repo for repo in scan.repos if repo.repo_path.resolve() == repository.resolve())
        commits = [revision.commit_hash for repo in mine for revision in repo.revisions]
    else:
        folder = find_snapshot(name)
        commits = [folder.name] if folder else []
        if folder is None:
            raise ModelError(f"{name} is not in {hub_cache()}.", hint="gencli models list shows the models.")
    # The library knows which files revisions share, but not unfinished downloads.
    strategy = scan.delete_revisions(*commits)

    def execute() -> None:
        with repository_lock(name):
            strategy.execute()
            if is_whole:
                shutil.rmtree(repository, ignore_errors=True)
        if is_whole and repository.exists():
            raise ModelError(f"{repository} cannot be removed.", hint="Check its owner and permissions.")

    freed: int = strategy.expected_freed_size
    return Removal(max(freed, disk_bytes(repository)) if is_whole else freed, execute)
