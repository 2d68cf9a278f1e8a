"""A template that does not end is ended, and the next one is rendered."""

from gencli.templates import chat_templates as module
from tests.templates.test_chat_templates import order, renderer

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def test_one_that_does_not_end_is_ended_and_the_next_one_is_rendered(renderer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "SECONDS", 0.3)
        assert renderer.render(order(ENDLESS)).error == "it did not end within 0.3 seconds"
    assert renderer.render(order("{{ a }}", a="x")).text == "x"

    renderer.close()
    assert renderer.render(order("x")).text == "x"
