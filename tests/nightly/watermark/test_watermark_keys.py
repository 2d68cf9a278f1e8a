"""A key file gives a watermark's values, under the names of several systems; no fault shows what is in it."""

import pytest

from gencli.errors import ConfigError
from gencli.watermark_keys import KINDS
from tests.watermark.test_watermark_keys import params


def test_a_hostile_file_ends_in_our_error_without_the_key(params):
    for content in [
        b"",
        b"\xff\xfe",
        b"not a key 918273645546372819",
        b"key: [918273645546372819",
        b"{}",
        b"- 1",
        b"ratio: 0.5",
        b"key: '918273645546372819'",
        b"key: 918273645546372819.5",
        b"key: -918273645546372819",
        b"key: 918273645546372819\nkey: 918273645546372819",
        b"918273645546372819" * 300,
        b"key: " + b"918273645546372819" * 400,
        b"918273645546372819: 1",
        b"key: 918273645546372819\nnope: 1",
        b"key: 918273645546372819\nratio: 2",
        b"watermark: other\nkey: 918273645546372819",
        b"key: !!python/object/apply:os.system ['918273645546372819']",
        b"[" * 5000,
        b"x" * 70_000,
        b"key: [[918273645546372819]]",
        b"a: &a [1,1]\nb: &b [*a,*a]\nkey: [*b,*b]",
        b"\0918273645546372819",
    ]:
        for kind in KINDS:
            with pytest.raises(ConfigError) as error:
                params(kind, content)
            assert "918273645546372819" not in f"{error.value}{error.value.hint}", content
            assert error.value.__suppress_context__ or error.value.__context__ is None, content
