"""The compiler: each grammar once, beside other work, kept on disk."""

import json

import pytest

from processors.errors import GrammarTimeout
from processors.grammar import grammar_compiler as compiler_module
from processors.grammar.compile_guards import GrammarStore
from processors.testing.examples import HOSTILE
from tests.processors.grammar.kit import state_of
from tests.processors.grammar.test_grammar_compiler import compilers, schema


def test_what_a_process_has_tried_needs_no_process_again(compilers, tmp_path, monkeypatch):
    warned = schema(json.dumps({"type": "string", "pattern": "^a(?=b)", "maxLength": 3}))
    here = compilers().backend("xgrammar").compile(warned)

    def check():
        """A grammar from the process, and one without any."""
        first = compilers(cache_dir=tmp_path).compile(warned)
        with monkeypatch.context() as patch:
            patch.setattr(compiler_module, "CompileProcess", None)
            second = compilers(cache_dir=tmp_path).compile(warned)
        assert first.warnings == second.warnings == here.warnings != ()
        for grammar in (first, second):
            assert state_of("xgrammar", grammar.matcher()) == state_of("xgrammar", here.matcher())

    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "_RECOMPILE_SECONDS", 0.0)  # it comes over as bytes
        check()
    (path,) = tmp_path.iterdir()
    assert GrammarStore(tmp_path).get(path.stem).endswith(b"}")
    GrammarStore(tmp_path).put(path.stem, b"not what xgrammar wrote")
    check()  # it is compiled again, and what was stored is replaced
    assert GrammarStore(tmp_path).get(path.stem) == b""


def test_the_error_names_the_limit_and_what_was_left_of_it(compilers):
    hours = HOSTILE["json_schema", "hours to compile"]()
    with pytest.raises(GrammarTimeout, match=r"the time limit of 0\.5 s\.$"):
        compilers(timeout=0.5).compile(schema(hours))
    with pytest.raises(GrammarTimeout, match=r"of 0\.5 s, of which 0\.1 s were left\.$"):
        compilers(timeout=0.5).compile(schema(hours), 0.1)
