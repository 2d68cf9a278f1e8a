"""A user's model gives the schema, and judges documents by its own validators."""

import re
import sys

import pytest

from gencli.errors import ConfigError
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_inputs import load_model
from tests.helpers.refusal import refusal

pytest.importorskip("pydantic")

CODE = """
from dataclasses import dataclass
from datetime import date
from typing import Callable, Literal

from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

class Person(BaseModel):
    name: str = Field(min_length=2)
    born: date
    friends: list["Person"] = []

    @field_validator("name")
    @classmethod
    def is_title(cls, name):
        if name == "boom":
            raise RuntimeError("broken")
        if not name.istitle():
            raise ValueError("a name is capitalised")
        return name

@dataclass
class Point:
    x: int
    y: float = 0.0

class Row(TypedDict):
    id: int
    kind: Literal["a", "b"]

class Shop:
    Person = Person

People = list[Person]
Either = Point | Row
number = 5

class Odd:
    pass

class NoSchema(BaseModel):
    call: Callable[[], int]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "our_models.py").write_text(CODE)
    (tmp_path / "broken_models.py").write_text("1 / 0\n")
    (tmp_path / "leaving_models.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "needing_models.py").write_text("import surely_not_installed\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_models")]:
        del sys.modules[name]


def test_a_model_gives_a_schema_that_can_be_used():
    for name in ["Person", "Shop.Person", "Point", "Row", "People"]:
        schema = load_model(f"our_models:{name}").schema()
        check_schema(schema)
        assert schema, name


def test_a_union_of_models_is_one():
    check_schema(load_model("our_models:Either").schema())


def test_a_model_judges_by_its_own_validators():
    model = load_model("our_models:Person")
    assert model.faults('{"name": "Ada", "born": "1815-12-10"}') == ()
    assert model.faults('{"name": "ada", "born": "1815-12-10"}') == (
        '/name: Value error, a name is capitalised, not "ada"',
    )
    first, second = model.faults(
        '{"name": "Ada", "born": "x", "friends": [{"name": "Bo", "born": "1815-12-10"}, 1]}'
    )
    assert first.startswith("/born: ")
    assert second.startswith("/friends/1: ")


def test_a_validator_that_breaks_is_a_fault():
    (fault,) = load_model("our_models:Person").faults('{"name": "boom", "born": "1815-12-10"}')
    assert "raised RuntimeError: broken" in fault


def test_what_is_no_model_is_refused():
    for name, part in [
        ("our_models", "names no model"),
        (":Person", "names no model"),
        ("not_here_models:Person", "no module 'not_here_models'"),
        ("our_models.inner:Person", "no module 'our_models.inner'"),
        ("needing_models:Person", "needs surely_not_installed"),
        ("broken_models:Person", "cannot be imported: ZeroDivisionError"),
        ("leaving_models:Person", "cannot be imported: SystemExit"),
        ("our_models:Persn", "no 'Persn' in our_models"),
        ("our_models:number", "is a int, but has to be a pydantic model"),
        ("our_models:Odd", "is a type, but has to be a pydantic model"),
        ("our_models:Shop.number", "no 'number'"),
    ]:
        assert re.search(part, refusal(ConfigError, load_model, name)), name


def test_a_model_without_a_schema_is_refused():
    with pytest.raises(ConfigError, match="has no JSON schema"):
        load_model("our_models:NoSchema").schema()


def test_without_pydantic_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigError, match="needs pydantic") as caught:
        load_model("our_models:Person")
    assert "pip install" in caught.value.hint


def test_the_search_path_is_left_as_it_was():
    before = list(sys.path)
    load_model("our_models:Person")
    assert sys.path == before
