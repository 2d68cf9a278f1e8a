"""Where a conversation or a prompt has the text that tells the model of its schema or tools."""

from gencli.templates.chat_templates import NOTHING, Instructions, render_conversation
from gencli.text.tokenizer import ByteTokenizer

TURN = {"role": "user", "content": "hi"}
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
