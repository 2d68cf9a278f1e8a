"""Conversations with a system message, with what tells of schema or tools; templates in their own process."""

import pytest

from gencli.errors import ModelError
from gencli.templates.chat_templates import (
    NOTHING,
    Instructions,
    Renderer,
    RenderOrder,
    has_system,
    render_conversation,
    with_system,
)
from gencli.text.tokenizer import ByteTokenizer

TURN = {"role": "user", "content": "hi"}


def test_a_system_message_of_its_own_stays():
    for role in ["system", "developer"]:
        messages = [{"role": role, "content": "Mine."}, TURN]
        assert has_system(messages), role
        assert with_system(messages, "Other.") == tuple(messages), role


def test_a_system_message_comes_first():
    for messages in [[], [TURN]]:
        assert not has_system(messages), messages
        kind = {"role": "system", "content": "Be kind."}
        assert with_system(messages, "Be kind.") == (kind, *messages), messages
        assert with_system(messages, None) == tuple(messages), messages

    text = render_conversation(ByteTokenizer(), [TURN], system="Be kind.")
    assert text == "system: Be kind.\nuser: hi\nassistant:"


def test_an_answer_may_go_on_with_the_last_message():
    for content in ["The answer ", "", "END", " a\n\n"]:
        messages = [TURN, {"role": "assistant", "content": content}]
        text = render_conversation(ByteTokenizer(), messages, is_continued=True)
        assert text == f"user: hi\nassistant: {content}", content

    class Deaf(ByteTokenizer):
        def render_chat(self, messages, **kwargs):
            return "hello"

    with pytest.raises(ModelError, match="does not write the last message"):
        render_conversation(Deaf(), [TURN], is_continued=True)


TOOLS = ({"type": "function", "function": {"name": "beep", "parameters": {}}},)


class Strict(ByteTokenizer):
    """Its template takes no system message."""

    has_system_turn = False


class Equipped(ByteTokenizer):
    """Its template has a place for tools."""

    def renders_tools(self, tools):
        return True

    def render_chat(self, messages, **kwargs):
        return f"tools: {len(kwargs.get('tools') or ())}\n{super().render_chat(messages, **kwargs)}"


def rendered(messages, instructions, tokenizer=None, **kwargs):
    return render_conversation(tokenizer or ByteTokenizer(), messages, instructions=instructions, **kwargs)


def test_a_text_is_at_the_end_of_the_system_turn():
    told = Instructions("Write JSON.")
    assert rendered([TURN], told) == "system: Write JSON.\nuser: hi\nassistant:"
    assert rendered([TURN], told, system="Be kind.") == (
        "system: Be kind.\n\nWrite JSON.\nuser: hi\nassistant:"
    )
    for role in ("system", "developer"):
        own = [{"role": role, "content": "Mine."}, TURN]
        assert rendered(own, told, system="Other.") == f"{role}: Mine.\n\nWrite JSON.\nuser: hi\nassistant:"
    assert rendered([TURN], NOTHING) == "user: hi\nassistant:"


def test_a_text_is_before_the_first_question_where_there_is_no_system_turn():
    told = Instructions("Write JSON.")
    messages = [TURN, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "why"}]
    text = "user: Write JSON.\n\nhi\nassistant: yes\nuser: why\nassistant:"
    assert rendered(messages, told, Strict()) == text
    answer = [{"role": "assistant", "content": "yes"}]
    assert rendered(answer, told, Strict()) == "user: Write JSON.\nassistant: yes\nassistant:"


def test_an_answer_goes_on_after_the_same_text():
    told = Instructions("Write JSON.")
    messages = [TURN, {"role": "assistant", "content": "The "}]
    text = rendered(messages, told, is_continued=True)
    assert text == "system: Write JSON.\nuser: hi\nassistant: The "
    assert rendered([TURN], told, Strict(), is_continued=True) == "user: Write JSON.\n\nhi"


def test_tools_are_told_once_by_the_template_or_by_the_text():
    told = Instructions("Write JSON.", tools=TOOLS, tools_text="Call beep.")
    assert rendered([TURN], told) == "system: Write JSON.\n\nCall beep.\nuser: hi\nassistant:"
    assert rendered([TURN], told, Equipped()) == "tools: 1\nsystem: Write JSON.\nuser: hi\nassistant:"
    silent = Instructions(tools=TOOLS)
    assert rendered([TURN], silent) == "user: hi\nassistant:"
    assert rendered([TURN], silent, Equipped()) == "tools: 1\nuser: hi\nassistant:"


def test_a_notice_says_who_tells_the_model_of_its_tools():
    shown = Instructions(tools=TOOLS, tools_text="Call beep.")
    (text,) = shown.notices(ByteTokenizer())
    assert "no place for tools" in text
    assert "leaves it out" in text
    (text,) = Instructions(tools=TOOLS).notices(ByteTokenizer())
    assert "nothing tells the model" in text
    for told in (shown, Instructions(tools=TOOLS)):
        assert told.notices(Equipped()) == ()
    for told in (NOTHING, Instructions("x"), Instructions("x", tools=TOOLS)):
        assert told.notices(ByteTokenizer()) == ()


def test_a_raw_prompt_has_the_text_before_it():
    assert Instructions("Write JSON.").before == "Write JSON.\n\n"
    tools = Instructions("Write JSON.", tools=TOOLS, tools_text="Call beep.")
    assert tools.before == "Write JSON.\n\n", "raw prompts are as they are unless asked otherwise"
    both = Instructions("Write JSON.", tools=TOOLS, tools_text="Call beep.", is_raw_told=True)
    assert both.before == "Write JSON.\n\nCall beep.\n\n"
    assert NOTHING.before == ""


@pytest.fixture(scope="module")
def renderer():
    renderer = Renderer()
    yield renderer
    renderer.close()


def order(template, limit=100, *, is_chat=False, **variables):
    return RenderOrder(template, variables, is_chat, limit)


def test_a_template_gives_its_text_within_its_limit_and_a_check_its_variables(renderer):
    found = renderer.render(order("{{ a }} and {{ b[0] }}\n", a="x", b=["y"]))
    assert (found.text, found.error) == ("x and y\n", "")

    template = "{% set c = 1 %}{% for d in b %}{{ a.x }}{{ d }}{{ c }}{% endfor %}"
    assert renderer.render(RenderOrder(template, None, is_chat=False, limit=1)).names == ("a", "b")

    assert renderer.render(order("{{ a }}", limit=3, a="abc")).text == "abc"
    assert (
        renderer.render(order("{{ a }}", limit=2, a="abc")).error == "the result is longer than 2 characters"
    )


def test_wrong_syntax_has_its_line_and_a_name_without_a_value_is_an_error_of_prompts_alone(renderer):
    found = renderer.render(RenderOrder("one\n{% if %}", None, is_chat=False, limit=1))
    assert (found.line, bool(found.error)) == (2, True)

    for is_chat, error in [(False, "'a' is undefined"), (True, "")]:
        found = renderer.render(order("{{ a }}", is_chat=is_chat))
        assert (found.error, found.is_undefined) == (error, bool(error)), is_chat
