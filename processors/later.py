"""torch, and modules that need it or time, imported when their first attribute is asked for.

A stage is declared beside its code, and help, completion and checks of presets read declarations: they start
without torch. `from processors.later import torch` gives a file a stand-in. Its first use imports the module
and puts it into that file's globals, so that further uses cost what they cost after `import torch`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = import_module(self._name)
        user = sys._getframe(1).f_globals
        for name in [name for name, value in user.items() if value is self]:
            user[name] = module
        return getattr(module, attribute)


if TYPE_CHECKING:
    import torch as torch

    from processors import graphs as graphs
    from processors import rng as rng
    from processors.grammar import closing as closing
    from processors.grammar import forced_tokens as forced_tokens
    from processors.grammar import grammar_backend as grammar_backend
    from processors.grammar import grammar_state as grammar_state
    from processors.grammar import narrowing as narrowing
    from processors.grammar import short_texts as short_texts
    from processors.kernels import operations as operations
else:
    torch = _Later("torch")
    graphs = _Later("processors.graphs")
    rng = _Later("processors.rng")
    closing = _Later("processors.grammar.closing")
    forced_tokens = _Later("processors.grammar.forced_tokens")
    grammar_backend = _Later("processors.grammar.grammar_backend")
    grammar_state = _Later("processors.grammar.grammar_state")
    narrowing = _Later("processors.grammar.narrowing")
    short_texts = _Later("processors.grammar.short_texts")
    operations = _Later("processors.kernels.operations")
