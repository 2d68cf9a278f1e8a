"""Triton kernels on a CPU, by Triton's interpreter: their values, not their speed."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context

import pytest
import torch

__all__ = ["interpreted"]


def interpreted(module, function):
    """The function of a module with kernels, for CPU tensors; the test is skipped without Triton.

    It runs in another process, as Triton decides at its import whether kernels are interpreted. Tensors that
    it changes in place are changed here too.
    """
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")

    def call(*args):
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
        process.submit(os.getpid).result()  # it has begun, with this environment
    return process


def _run(module, function, args):
    return getattr(import_module(module), function)(*args), args
