"""Triton kernels on a CPU, by Triton's interpreter: their values, not their speed.

With GENCLI_KERNELS=cuda, as `make test-gpu` sets it, they run on the CUDA device: the same tests, on a card.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context

import pytest
import torch

__all__ = ["ON_CUDA", "interpreted"]
ON_CUDA = os.environ.get("GENCLI_KERNELS") == "cuda"


def interpreted(module, function):
    """The function of a module with kernels, for CPU tensors; the test is skipped without Triton.

    It runs in another process, as Triton decides at its import whether kernels are interpreted. Tensors that
    it changes in place are changed here too.
    """
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    if ON_CUDA and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")

    def call(*args):
        if ON_CUDA:
            found, changed = _run_there(module, function, args)
        else:
            found, changed = _process().submit(_run, module, function, args).result()
        for here, there in zip(args, changed, strict=True):
            if isinstance(here, torch.Tensor):
                here.copy_(there)
        return found

    return call


@cache
def _process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        process = ProcessPoolExecutor(1, get_context("spawn"))
        process.submit(_prepare_once).result()  # it has begun, with this environment
    return process


def _prepare_once():
    """Have Triton's interpreter prepare its language once for each launch.

    By itself it does so at each call of a function by a function too, which takes half of the time. What is
    prepared within a launch holds until its end.
    """
    core, interpreter = import_module("triton.language.core"), import_module("triton.runtime.interpreter")
    languages, prepare, prepared = (import_module("triton.language"), core), interpreter._patch_lang, set()

    @cache
    def used_by(function):
        values = function.__globals__.values()
        return {place for place, one in enumerate(languages) if any(value is one for value in values)}

    def prepare_missing(function):
        if prepared and used_by(function) <= prepared:
            return None  # a call by a function drops what it is given here
        scope = prepare(function)
        if not prepared:  # the launch
            restore = scope.restore
            scope.restore = lambda: (prepared.clear(), restore())
        prepared.update(used_by(function))
        return scope

    interpreter._patch_lang = prepare_missing


def _run(module, function, args):
    return getattr(import_module(module), function)(*args), args


def _run_there(module, function, args):
    found, changed = _run(module, function, _moved(args, "cuda"))
    return _moved(found, "cpu"), _moved(changed, "cpu")


def _moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return type(value)(_moved(part, device) for part in value) if isinstance(value, list | tuple) else value
