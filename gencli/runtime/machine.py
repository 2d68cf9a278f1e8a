"""What surrounds a run: quiet and fast imports of large libraries, how PyTorch's CPU threads wait for each
other, and findings about the installation and the machine, each with a line of advice. A matrix product
ends when its last thread ends: on an idle machine spinning threads are up to a fifth faster, beside
busy processes many times slower. The OpenMP library reads its setting when PyTorch is imported, so the
choice is made before that.
"""

from __future__ import annotations

import gc
import locale
import logging
import os
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Literal
from urllib.parse import urlsplit

from gencli.helpers import counted, is_shared
from gencli.models.files.local_models import cached_models, disk_bytes, endpoint, hub_cache, is_offline

# The libraries read these variables when they are imported later.
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


@contextmanager
def importing() -> Iterator[None]:
    """Pause the garbage collector while libraries are imported in the block.

    The collector would repeatedly traverse hundreds of thousands of objects that all stay alive. After the
    block it ignores these objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def quiet_libraries(*, is_on: bool = True) -> Iterator[None]:
    """Silence the libraries inside the block. Messages that a user needs become errors or notices."""
    if not is_on:
        yield
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


Wait = Literal["auto", "spin", "sleep"]
_POLICY = "OMP_WAIT_POLICY"


def set_wait(wait: Wait, environ: MutableMapping[str, str]) -> None:
    """Set how threads wait in this process. An existing value of OMP_WAIT_POLICY is kept.

    `spin` is the default of the library, which sleeps after a few milliseconds of spinning, so it costs
    nothing while a chat waits for its next turn.
    """
    if wait == "sleep" or (wait == "auto" and is_shared()):
        environ.setdefault(_POLICY, "PASSIVE")


_PACKAGES = {
    "gencli": "Install it: pip install -e .",
    "torch": "Nothing runs without it: pip install torch",
    "transformers": "No model but fake loads without it: pip install transformers",
    "tokenizers": "No model but fake loads without it: pip install tokenizers",
    "xgrammar": "Grammars need it: pip install xgrammar",
    "prompt_toolkit": "gencli chat on a terminal needs it: pip install prompt_toolkit",
}
_EXTRAS = {
    "cpu": "Faster and closer products of few bits on a CPU",
    "batch": "Parquet, .zst and remote files of batches",
    "pydantic": "Pydantic models as schemas",
    "ray": "Workers of batches, replicas of the server",
    "serve": "gencli serve",
    "multi-gpu": "One model over several GPUs",
    "plots": "Pictures of sweeps and of docs/",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `advice`: what the user can do about it, or what it means."""

    area: str
    name: str
    value: str
    advice: str
    is_good: bool = True


def examine() -> Iterator[Finding]:
    """Yield all findings. An exception in one area becomes a finding."""
    for area, look in _AREAS.items():
        try:
            yield from look()
        except Exception as error:  # the finding shows the user what is broken
            yield Finding(
                area, "failed", f"{type(error).__name__}: {error}", "See the message.", is_good=False
            )


def _versions() -> Iterator[Finding]:
    yield Finding("version", "python", platform.python_version(), f"It is {sys.executable}.")
    for name, missing in _PACKAGES.items():
        if version := _version(name):
            yield Finding("version", name, version, "Installed.")
        else:
            yield Finding("version", name, "missing", missing, is_good=False)


def _extras() -> Iterator[Finding]:
    """Yield the extras of pyproject.toml, and what of each is not installed."""
    needed: dict[str, list[str]] = {name: [] for name in _EXTRAS}
    for line in metadata.requires("gencli") or ():
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
        if package and extra and extra[1] in needed:
            needed[extra[1]].append(package[0])
    for name, packages in needed.items():
        missing = [package for package in packages if not _version(package)]
        value = f"without {', '.join(missing)}" if missing else "installed"
        command = f": pip install 'gencli[{name}]'" if missing else ""
        yield Finding("extra", name, value, f"{_EXTRAS[name]}{command or '.'}")


def _version(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _devices() -> Iterator[Finding]:
    import torch

    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    yield Finding("device", "cpu", f"{cores} cores, {threads} threads", "`threads` = N takes fewer.")
    flags: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    names = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "bf16", "sve")
    features = [name for name in names if flags.get(name)]
    shown = ", ".join(features) or "none known"
    if any(name in features for name in ("amx_bf16", "avx512_bf16", "bf16")):
        yield Finding("device", "bfloat16", f"native ({shown})", "`dtype` = auto takes it for such weights.")
    else:
        advice = "`dtype` = auto takes float32 here, which is faster and needs twice the memory."
        yield Finding("device", "bfloat16", f"emulated ({shown})", advice)
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        value = f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
        yield Finding("device", f"cuda:{index}", value, f"`device` = cuda:{index} takes it.")
    if torch.backends.mps.is_available():
        yield Finding("device", "mps", "Apple GPU", "`device` = mps takes it.")
    elif not torch.cuda.is_available():
        from gencli.models.device import no_gpu_reason

        has_driver = shutil.which("nvidia-smi") is not None
        advice = f"{no_gpu_reason()}. Models run on the CPU; small ones are fine there."
        yield Finding("device", "gpu", "not used" if has_driver else "none", advice, is_good=not has_driver)


def _kernels() -> Iterator[Finding]:
    from gencli.models.decoder.kernels.llvm_code import dot_instructions, missing

    reason = missing()
    yield Finding(
        "kernel",
        "few bits",
        f"compiled ({dot_instructions()})" if reason is None else "those of PyTorch",
        "Weights of GGUF files and of int4 are multiplied as they are stored."
        if reason is None
        else f"The compiled ones are not used, as {reason}.",
    )
    import torch

    from gencli.models.decoder.products.product_maker import read_times

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    entries = read_times(device).entries
    for sizes, times in entries.items():
        value = ", ".join(f"{kernel} {micros / 1000:.3f} ms" for kernel, micros in times.items())
        advice = "`kernel` = NAME takes one for all products."
        if sizes.startswith("int8 "):
            advice = "Their results have the same bits; the fastest one is taken."
        yield Finding("kernel", sizes, value, advice)
    if not entries:
        yield Finding("kernel", "products", "not measured yet", "The first run of a model measures its own.")


def _caches() -> Iterator[Finding]:
    cache = hub_cache()
    existing = next(path for path in (cache, *cache.absolute().parents) if path.is_dir())
    free = f"{shutil.disk_usage(existing).free / 2**30:.0f} GiB free"
    if cache.is_dir():
        models = list(cached_models())
        partial = sum(model.is_partial for model in models)
        more = f", {partial} more in part" if partial else ""
        count = counted(len(models) - partial, "model") + more
        value = f"{cache}: {count}, {disk_bytes(cache) / 2**30:.1f} GiB, {free}"
        yield Finding("cache", "hub", value, "HF_HOME moves it; gencli models list shows what is in it.")
    else:
        advice = "gencli models pull NAME puts a model there."
        yield Finding("cache", "hub", f"{cache} (none), {free}", advice)
    if variable := is_offline():
        yield Finding("cache", "network", f"off ({variable})", "No model is fetched. Unset it to fetch some.")
    else:
        host = urlsplit(endpoint()).hostname or "?"
        yield Finding("cache", "network", f"models come from {host}", "HF_HUB_OFFLINE=1 keeps it off.")


def _plugins() -> Iterator[Finding]:
    points = list(metadata.entry_points(group="gencli.processors"))
    for point in points:
        yield Finding("plug-in", point.name, point.value, "Its stage can be named with `stage`.")
    if not points:
        advice = "A package with the entry point gencli.processors adds stages."
        yield Finding("plug-in", "entry points", "none", advice)
    if os.environ.get("GENCLI_NO_PLUGINS"):
        yield Finding("plug-in", "GENCLI_NO_PLUGINS", "set", "Unset it to load them.", is_good=False)


def _terminal() -> Iterator[Finding]:
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    on = [name for name, stream in streams.items() if stream is not None and stream.isatty()]
    yield Finding(
        "terminal", "streams", ", ".join(on) or "none", "The others are pipes or files: plain text."
    )
    width = shutil.get_terminal_size().columns
    advice = "Help and tables are as wide." if width >= 60 else "Tables need 60 columns or more."
    yield Finding("terminal", "width", str(width), advice, is_good=width >= 60)
    plain = [name for name in ("NO_COLOR",) if os.environ.get(name)]
    plain += ["TERM=dumb"] if os.environ.get("TERM") == "dumb" else []
    advice = "Nothing is drawn, only written." if plain else "NO_COLOR=1 turns colour and drawing off."
    yield Finding("terminal", "colour", f"off ({', '.join(plain)})" if plain else "on", advice)
    encoding = (sys.stdout.encoding if sys.stdout else None) or locale.getpreferredencoding(False)
    is_good = encoding.lower().replace("-", "") == "utf8"
    advice = "Every character can be shown." if is_good else "Others are escaped; PYTHONUTF8=1 gives UTF-8."
    yield Finding("terminal", "encoding", encoding, advice, is_good=is_good)


def _folders() -> Iterator[Finding]:
    from platformdirs import user_config_path, user_state_path

    for name, path, use in (
        ("config", user_config_path("gencli"), "Your presets."),
        ("state", user_state_path("gencli"), "The history of chats."),
    ):
        note = "" if path.is_dir() else " (not there yet)"
        yield Finding("folder", name, f"{path}{note}", use)


_AREAS: dict[str, Callable[[], Iterator[Finding]]] = {
    "version": _versions,
    "extra": _extras,
    "device": _devices,
    "kernel": _kernels,
    "cache": _caches,
    "plug-in": _plugins,
    "folder": _folders,
    "terminal": _terminal,
}
