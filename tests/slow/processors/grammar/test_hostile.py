"""Hostile grammars: each compiles or is refused by name, and the process goes on."""

import random
import resource

import pytest

from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.request_values import Constraint
from processors.testing.examples import HOSTILE
from tests.processors.grammar.kit import env_of, legal

pytestmark = pytest.mark.usefixtures("own_children")  # it bounds their memory and stack
ALONE = {("xgrammar", "hours to compile"), ("xgrammar", "nested repeats")}  # have tests of their own

CASES = [
    (backend, kind, name)
    for backend, kinds in (
        ("xgrammar", ("json_schema", "regex", "ebnf")),
        ("llguidance", ("json_schema", "regex", "lark")),
    )
    for kind, name in HOSTILE
    if kind in kinds and (backend, name.removeprefix("pattern: ")) not in ALONE
]

# The time limit in seconds of what xgrammar does not compile; all else has enough on a busy machine, too.
# `never ends` is all forced.
HASTY = dict.fromkeys(("huge repeat", "pattern: huge repeat", "never ends"), 1)


HASTY |= {"long chain": 1, "long forced text": 4, "pattern: long forced text": 1}

# What has to be refused, and by what words. The rest has to compile, as it is merely unusual.
REFUSED = {
    "20 MB": "characters; the limit is",
    "a million choices": "characters; the limit is",
    "deep schema": "levels deep; the limit is",
    "deep constant": "levels deep; the limit is",
    "deep groups": "Nest|nest",
    "huge number": "cannot compile",
    "itself": "No text|Circular",
    "cycle of references": "No text|Circular",
    "only itself": "No text",
    "no text": "No text",
    "empty": "not found|no start rule",
    "no such rule": "other",
    "long chain": "the time limit of 1 s|depth of its stack",
    **{("xgrammar", name): f"the time limit of {limit} s" for name, limit in HASTY.items() if limit == 1},
    ("xgrammar", "long forced text"): "for token 1 of|the time limit of 4 s",
    ("llguidance", "many unions"): "max_grammar_size: 500,000",
    ("llguidance", "tiny multipleOf"): "digits",
    ("llguidance", "pattern: deep groups"): "nest",
    ("llguidance", "pattern: no text"): "empty",
}


@pytest.fixture(scope="module")
def compilers():
    """By their time limits in seconds."""
    compilers = {limit: GrammarCompiler(env_of("toy"), timeout=limit) for limit in (1, 4, 20)}
    yield compilers
    for compiler in compilers.values():
        compiler.close()
    # In KiB. A child begins as a copy of this process, whose size the kernel counts as the child's peak.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(2 << 20, own + 1)


# One of each way to be refused, or to be merely unusual; the test below has what takes too long.
TELLING = {
    ("xgrammar", "json_schema", "deep schema"),
    ("xgrammar", "json_schema", "cycle of references"),
    ("xgrammar", "ebnf", "only itself"),
    ("llguidance", "json_schema", "many unions"),
    ("llguidance", "json_schema", "tiny multipleOf"),
    ("llguidance", "json_schema", "huge maxLength"),
    ("llguidance", "lark", "no such rule"),
}


def test_a_hostile_grammar_compiles_or_is_refused_by_name(compilers, capfd):
    assert set(CASES) >= TELLING
    for case in sorted(TELLING):
        check(compilers, *case)
    assert capfd.readouterr().err == ""


def check(compilers, backend, kind, name):
    compiler = compilers[HASTY.get(name, 20) if backend == "xgrammar" else 20]
    constraint = Constraint(kind, HOSTILE[kind, name](), backend)
    said = REFUSED.get(name) or REFUSED.get((backend, name))
    if said:
        with pytest.raises(GrammarError, match=said):
            pytest.fail(f"{kind} {name} of {backend} is taken: {compiler.compile(constraint)}")
    else:
        walk(compiler.compile(constraint).matcher(), backend)


def walk(matcher, backend):
    """Some steps, any of which may find that it has nowhere to go."""
    rng = random.Random(0)
    for _ in range(8):
        if not (choices := legal(backend, matcher)):
            return
        assert matcher.accept(rng.choice(choices))


def test_a_grammar_that_takes_too_long_holds_up_no_other(compilers):
    compiler = compilers[1]
    slow = Constraint("json_schema", HOSTILE["json_schema", "hours to compile"](), "xgrammar")
    waiting = compiler.start(slow)
    assert compiler.compile(Constraint("json_schema", "{}", "xgrammar")).matcher()
    assert not waiting.done()
    with pytest.raises(GrammarTimeout, match="the time limit of 1 s"):
        waiting.result()


def test_a_grammar_that_takes_too_much_memory_is_refused():
    compiler = GrammarCompiler(env_of("toy"), memory=4 << 20)
    schema = HOSTILE["json_schema", "huge maxLength"]()
    with pytest.raises(GrammarError, match="memory limit of 4 MiB"):
        compiler.compile(Constraint("json_schema", schema, "xgrammar"))
    compiler.close()
