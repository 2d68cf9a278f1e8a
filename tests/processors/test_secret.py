"""A secret is equal by value and shows its value in no text."""

import copy
import pickle

import pytest

from processors.chain import Chain
from processors.errors import ParamError
from processors.params import Secret
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

KEY = 987654321987


def test_secrets_are_equal_by_value_and_travel():
    secret = Secret(KEY)
    assert secret == Secret([KEY]) == pickle.loads(pickle.dumps(secret)) == copy.deepcopy(secret)
    assert len({secret, Secret((KEY,)), Secret((KEY, 1))}) == 2
    assert secret.numbers == (KEY,)
    with pytest.raises(AttributeError):
        secret._numbers = (1,)


def test_no_text_of_a_chain_has_the_key():
    chain = Chain.parse(f"kgw:key={KEY},bias=3 | synthid:key=[{KEY},7] | gumbel_mark={KEY}")
    texts = [str(chain), repr(chain), str(chain.to_list()), f"{chain.get('kgw')}", repr(Secret(KEY))]
    assert not any(str(KEY) in text for text in texts)
    assert str(chain).startswith('kgw:key="#')
    assert chain.get("kgw") == KgwParams(Secret(KEY), bias=3.0)
    assert str(Secret(KEY)) != str(Secret(KEY + 1))


def test_what_is_no_key_is_refused_without_showing_it():
    for value in (f"{KEY}", float(KEY), [], [KEY, -1], 2**64, True, {"key": KEY}, "#12345678"):
        for params in (KgwParams, SynthIdParams, GumbelMarkParams):
            with pytest.raises(ParamError, match="no key, but has to be") as error:
                pytest.fail(f"{value} is taken: {params(key=value)}")
            assert str(KEY) not in str(error.value), value


def test_keys_that_a_watermark_cannot_use_are_refused():
    for make in (lambda: KgwParams((1, 2)), lambda: KgwParams(2**63), lambda: SynthIdParams(range(61))):
        with pytest.raises(ParamError, match="key has"):
            make()
    with pytest.raises(ParamError, match="power of 2"):
        SynthIdParams(1, table_size=1000)
