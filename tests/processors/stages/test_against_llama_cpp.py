"""llama.cpp's own samplers change random rows as our stages do, where llama-cpp-python is installed."""

import ctypes
import random
from pathlib import Path

import pytest
import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.processors.vectors.run import Words

llama_cpp = pytest.importorskip("llama_cpp")
TEXTS = tuple("abcdef")
_NEVER = (99,)  # an id that no text has; without any breaker the library warns


class _Vector(ctypes.Structure):
    """A std::vector: where it begins, ends, and would have to grow."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("first", "last", "limit"))

    @classmethod
    def of(cls, array):
        end = ctypes.addressof(array) + ctypes.sizeof(array)
        return cls(ctypes.addressof(array), end, end)


@pytest.fixture(scope="module")
def new_dry():
    """new_dry(multiplier, base, allowed, window, breakers) -> a sampler; breakers are lists of ids."""
    library = ctypes.CDLL(
        next(str(path) for path in Path(llama_cpp.__file__).parent.glob("lib/libllama.so*"))
    )
    try:
        make = library._Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE
    except AttributeError:
        pytest.skip("This build of llama.cpp lacks the function for tests of DRY.")
    make.restype = llama_cpp.llama_sampler_p_ctypes
    make.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p]

    def new(multiplier, base, allowed, window, breakers):
        inner = [(ctypes.c_int32 * len(ids))(*ids) for ids in (*breakers, _NEVER)]
        outer = (_Vector * len(inner))(*map(_Vector.of, inner))
        vector = _Vector.of(outer)
        return make(multiplier, base, allowed, window, ctypes.addressof(vector))

    return new


def sampled(sampler, logits, text):
    """The logits behind the text as the sampler leaves them."""
    for token in text:
        llama_cpp.llama_sampler_accept(sampler, token)
    data = (llama_cpp.llama_token_data * len(logits))(*[(i, logit, 0) for i, logit in enumerate(logits)])
    array = llama_cpp.llama_token_data_array(data, len(logits), -1, False)
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    llama_cpp.llama_sampler_free(sampler)
    found = {entry.id: entry.logit for entry in array.data[: array.size]}
    return [found[i] for i in range(len(logits))]


def processed(chain, logits, text):
    pipeline, history = Pipeline(Env(len(logits), Words(TEXTS))), History()
    history.admit(0, text)
    pipeline.admit(0, Chain.parse(chain), Admission(tuple(text)))
    return pipeline(torch.tensor([logits]), Rows.build(history, [0]))[0].tolist()


def rows(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        letters = rng.sample(range(len(TEXTS)), rng.randint(1, len(TEXTS)))
        text = rng.choices(letters, k=rng.randint(0, 24))
        yield rng, letters, text, [rng.uniform(-3, 3) for _ in TEXTS]


def test_dry_with_breakers_of_several_tokens(new_dry):
    """No window is shorter than a breaker, of which llama.cpp would see a part."""
    for seed in range(3):
        for rng, letters, text, logits in rows(seed, 1000):
            breakers = [
                rng.choices(letters, k=rng.choice((1, 1, 2, 3))) for _ in range(rng.choice((0, 0, 1, 1, 2)))
            ]
            values = (
                rng.choice((0.5, 2.0)),
                rng.choice((1.0, 1.3, 1.75)),
                rng.randint(0, 4),
                rng.randint(3, 30),
            )
            spelled = str(["".join(TEXTS[token] for token in ids) for ids in breakers]).replace("'", '"')
            chain = (
                "dry:multiplier={},base={},allowed={},window={},exempt=[],breakers=".format(*values) + spelled
            )
            expected = sampled(new_dry(*values, breakers), logits, text)
            assert processed(chain, logits, text) == pytest.approx(expected, rel=1e-5, abs=1e-5), (
                chain,
                text,
            )


def test_penalties():
    for rng, _, text, logits in rows(9, 1000):
        window, repeat = rng.randint(1, 30), rng.choice((0.7, 1.3, 50.0))
        more = f"scope=both,window={window},exempt=[]"
        stages = f"repetition:penalty={repeat}", "frequency:penalty=0.4", "presence:penalty=-0.3"
        chain = " | ".join(f"{stage},{more}" for stage in stages)
        sampler = llama_cpp.llama_sampler_init_penalties(len(TEXTS), window, repeat, 0.4, -0.3)
        expected = sampled(sampler, logits, text)
        assert processed(chain, logits, text) == pytest.approx(expected, rel=1e-5, abs=1e-5), (chain, text)
