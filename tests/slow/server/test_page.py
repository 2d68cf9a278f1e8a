"""The page at /, in headless Chromium: it generates, shows the chain, alternatives, errors, and stops."""

import re

import pytest

from tests.helpers.browser import CHROMIUM, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    tab = Browser(tmp_path_factory.mktemp("browser"))
    yield tab
    tab.close()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_person_generates_looks_and_stops(browser, spawn):
    process = spawn("serve", "--model", "tiny", "--port", "0", "--top-p", "0.9", text=True)
    url = next(found[1] for line in process.stderr if (found := re.search(r"at (\S+)/v1", line)))
    browser.call("Page.navigate", url=f"{url}/")
    assert browser.until("get('model').textContent") == "tiny"
    assert "top_p" in browser.until("document.querySelector('#chain td') && get('chain').innerText")
    assert "default of chat" in browser.until(
        "/min_p/.test(get('chain').innerText) && get('chain').innerText"
    )
    assert browser.until("document.activeElement.id") == "prompt"

    browser.do("document.querySelector('[value=completions]').click()")
    browser.do("get('options').elements.seed.value = '7'; get('options').elements.max_tokens.value = '12'")
    browser.call("Input.insertText", text="Once upon a time")
    browser.press("Enter", modifiers=2, windowsVirtualKeyCode=13)
    assert browser.until("/ended by/.test(get('status').textContent) && get('status').textContent")
    assert browser.until("document.querySelectorAll('article.text .token').length") == 12
    browser.do("document.querySelector('.token').focus(); document.activeElement.click()")
    assert "%" in browser.until("document.querySelector('#alternatives td') && get('alternatives').innerText")

    browser.do("window.list = article('text', '')")
    added = "addToken(list, { token, logprob: 0, top: [] })"
    browser.do(f"for (const token of ['1. a', '\\n', '2. b\\n3.', ' c']) {added}")
    boxes = "[...list.querySelectorAll('.token')].flatMap((one) => [...one.getClientRects()])"
    assert browser.until(f"new Set({boxes}.map((box) => box.top)).size") == 3

    browser.do("get('edit').focus(); document.activeElement.click()")
    assert browser.until("document.activeElement === get('edited') && get('edited').value") == (
        '[{"top_p":{"p":0.9}}]'
    )
    browser.do('get(\'edited\').value = \'[{"min_p": {"p": 0.1}}, {"top_p": {"p": 0.5}}]\'; showChain()')
    assert "0.5" in browser.until("/min_p/.test(get('chain').innerText) && get('chain').innerText")
    browser.do("get('edit').click()")
    browser.until("!/min_p/.test(get('chain').innerText) && get('editor').hidden")

    browser.do("get('options').elements.more.value = '{\"top_kk\": 5}'; showChain()")
    assert "top_k" in browser.until("document.querySelector('#chain .error')?.textContent")
    browser.do("get('options').elements.more.value = ''; get('options').elements.max_tokens.value = '900'")
    browser.do("get('prompt').value = 'One winter'; get('form').requestSubmit()")
    browser.until("document.querySelectorAll('article:last-of-type .token').length > 3")
    browser.press("Escape", windowsVirtualKeyCode=27)
    assert browser.until("/Stopped|ended/.test(get('status').textContent)")
    assert browser.until("!get('send').disabled")


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_asks_for_the_key_and_chooses_the_model(browser, spawn, tmp_path):
    key = tmp_path / "the.key"
    key.write_text("secret")
    names = ("--served-name", "first", "--served-name", "second", "--api-key-file", str(key))
    process = spawn("serve", "-m", "fake", "-m", "fake", *names, "--port", "0", text=True)
    url = next(found[1] for line in process.stderr if (found := re.search(r"Listening at (\S+),", line)))
    browser.call("Page.navigate", url=f"{url}/")  # it may come before the models
    assert "key" in browser.until("document.activeElement === get('key') && get('status').textContent")
    browser.call("Input.insertText", text="wrong")
    browser.press("Enter", text="\r", windowsVirtualKeyCode=13)
    browser.until("!get('key').value && /wrong/.test(get('status').textContent)")
    browser.call("Input.insertText", text="secret")
    browser.press("Enter", text="\r", windowsVirtualKeyCode=13)
    assert browser.until("get('model').options.length") == 2
    assert browser.until("get('access').hidden && document.activeElement.id") == "prompt"
    assert browser.until("sessionStorage.length === 1 && localStorage.length === 0 && !document.cookie")

    browser.do("get('model').value = 'second'; get('prompt').value = 'hi'; get('form').requestSubmit()")
    assert browser.until("/ended by/.test(get('status').textContent)")
    metrics = (
        "fetch('/metrics', { headers: { authorization: `Bearer ${key}` } }).then((reply) => reply.text())"
    )
    browser.do(f"{metrics}.then((text) => {{ window.found = text; }})")
    found = browser.until("window.found")
    assert 'gencli_request_success_total{model_name="second"' in found
    assert 'gencli_request_success_total{model_name="first"' not in found
    browser.call("Page.reload")
    assert browser.until("get('model').options.length") == 2
