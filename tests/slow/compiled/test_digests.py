"""What the table says of a kernel holds while its digest does: all that decides over its code is in it."""

import pytest

from tests.compiled.aot import digest, known, taken
from tests.compiled.test_digests import BUILD, CODE, module

pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


def test_what_has_its_digest_is_known_and_nothing_else(module):
    name = module(CODE)
    build = BUILD | {"limits": {"80": taken(name, BUILD, 80)}}
    sealed = build | {"digests": {"80": digest(name, build, 80)}}
    assert known(name, sealed, 80) == taken(name, BUILD, 80)
    lowered = [limit - 1 for limit in build["limits"]["80"]]
    assert known(name, sealed | {"limits": {"80": lowered}}, 80) is None
    assert known(name, build, 80) is None


pytest.importorskip("triton", reason="Triton is not installed, so no kernel can be compiled")


OTHER_CODE = [
    ("return x + 1", "return x + 2"),  # of a helper
    ("_of_kernel(x) * SIGN", "_of_kernel(x) + SIGN"),
    ("constexpr(64)", "constexpr(128)"),
    ('"enable_fp_fusion": False', '"enable_fp_fusion": True'),
    ("{", '{"num_warps": 8, '),
]


def test_other_code_has_another_digest(module):
    for before, after in OTHER_CODE:
        assert before in CODE
        other = digest(
            module(CODE.replace(before, after, 1)), BUILD, 80
        )  # before the name is that of the next one
        assert digest(module(CODE), BUILD, 80) != other, after
