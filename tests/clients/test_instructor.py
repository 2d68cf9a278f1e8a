"""instructor on a real model, in each of its modes for OpenAI's API."""

from collections.abc import Iterable

import pytest
from pydantic import BaseModel, Field

instructor = pytest.importorskip("instructor")
openai = pytest.importorskip("openai")

Mode = instructor.Mode
# PARALLEL_TOOLS and MD_JSON have tests of their own; FUNCTIONS is deprecated.
CHATS = [Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON, Mode.JSON_SCHEMA, Mode.JSON_O1]
RESPONSES = [Mode.RESPONSES_TOOLS, Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS]
ASKED = [{"role": "user", "content": "Extract: Jason is 25 years old."}]


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)


def client(smol, mode, package=openai.OpenAI):
    return instructor.from_openai(package(base_url=smol.url, api_key="any", max_retries=0), mode=mode)


@pytest.mark.parametrize("mode", [*CHATS, *RESPONSES])
def test_a_model_of_pydantic(smol, mode):
    made = client(smol, mode)
    found, reply = made.create_with_completion(
        model="smol", messages=ASKED, response_model=Person, max_retries=0
    )
    assert found.age == 25
    assert reply.usage.total_tokens > 0


@pytest.mark.parametrize("mode", [*CHATS, *RESPONSES])
def test_partial_models_and_lists(smol, mode):
    made = client(smol, mode)
    *_, last = made.create_partial(model="smol", messages=ASKED, response_model=Person, max_retries=0)
    assert last.age == 25
    people = list(made.create_iterable(model="smol", messages=ASKED, response_model=Person, max_retries=0))
    assert all(isinstance(person, Person) for person in people)


def test_the_same_without_waiting(smol, wait):
    async def ask():
        made = client(smol, Mode.TOOLS, openai.AsyncOpenAI)
        return await made.create(model="smol", messages=ASKED, response_model=Person, max_retries=0)

    assert wait(ask()).age == 25


def test_parallel_tools(smol):
    """One call, as such a small model would repeat it until the end."""
    options = {"model": "smol", "parallel_tool_calls": False, "max_retries": 0}
    asked = [{"role": "user", "content": "Call the function Person with the name Jason and the age 25."}]
    made = client(smol, Mode.PARALLEL_TOOLS)
    found = made.create(messages=asked, response_model=Iterable[Person], **options)
    assert list(found) == [Person(name="Jason", age=25)]


def test_a_simple_type_and_a_plain_answer(smol):
    made = client(smol, Mode.TOOLS)
    number = made.create(model="smol", messages=ASKED, response_model=int, max_retries=0)
    assert isinstance(number, int)
    plain = made.create(model="smol", messages=ASKED, response_model=None)
    assert plain.choices[0].message.content


def test_json_in_markdown(smol):
    """The mode asks for no structure, so a small model gets a regex."""
    made = client(smol, Mode.MD_JSON)
    person = r'\{"name": "[A-Z][a-z]{1,9}", "age": [1-9][0-9]\}'
    options = {"model": "smol", "messages": ASKED, "response_model": Person, "max_retries": 0}

    def block(text):
        return {"regex": rf"```json\n{text}\n```"}

    assert made.create(**options, extra_body=block(person)).age == 25
    *_, last = made.create_partial(**options, extra_body=block(person))
    assert last.age == 25
    tasks = rf'\{{"tasks": \[{person}\]\}}'
    assert [one.age for one in made.create_iterable(**options, extra_body=block(tasks))] == [25]
