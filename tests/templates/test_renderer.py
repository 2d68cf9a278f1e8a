"""Templates are rendered in a process of their own, which does not outlive its bounds."""

import pytest

from gencli.templates.chat_templates import Renderer, RenderOrder


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
