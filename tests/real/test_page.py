"""The page in headless Chromium shows the lines of a real answer as lines."""

import os
import re

import pytest

from tests.helpers.browser import CHROMIUM, Browser
from tests.real.models import SMOL, folder


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        assert os.environ.get("CI") != "true", "Chromium is not installed"
        pytest.skip("Chromium is not installed")
    made = Browser(tmp_path)
    yield made
    made.close()


def test_a_list_has_a_line_for_each_entry(browser, spawn):
    model = ("--model", str(folder(SMOL)), "--dtype", "float32", "--temperature", "0")
    process = spawn("serve", *model, "--port", "0", own=True, text=True)
    url = next(found[1] for line in process.stderr if (found := re.search(r"at (\S+)/v1", line)))
    browser.call("Page.navigate", url=f"{url}/")
    browser.until("get('model').textContent")
    browser.do("get('options').elements.max_tokens.value = '40'")
    browser.do("get('prompt').value = 'Give me a list of three fruits.'; get('form').requestSubmit()")
    browser.until("/ended by/.test(get('status').textContent)")
    text = browser.until("document.querySelector('article.assistant').textContent")
    lines = text.count("\n") + 1
    assert lines >= 3, text
    tokens = "[...document.querySelectorAll('article.assistant .token')]"
    boxes = f"{tokens}.flatMap((one) => [...one.getClientRects()])"
    assert browser.until(f"new Set({boxes}.map((box) => Math.round(box.top))).size") >= 3
