"""Pages in a tab of headless Chromium without network."""

import subprocess

import pytest

from gencli.explain.trace_file import read_trace
from tests.helpers.browser import CHROMIUM, Browser
from tests.helpers.quick import quick_gencli

DRAWN = "performance.getEntriesByName('drawn').length"
ROLES = ("button", "combobox", "gridcell", "option", "radio", "searchbox", "slider", "treeitem")
TROUBLES = ("Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")


class Tab:
    """A page in the tab; what goes wrong in it fails the test that looks."""

    def __init__(self, browser, folder):
        self._browser, self._folder = browser, folder
        self.press, self.value, self.until = browser.press, browser.value, browser.until

    def open(self, html, *, width=1200, dark=False, reduced=False):
        """Show a page; `width` in CSS pixels."""
        file = self._folder / "page.html"
        file.write_text(html, encoding="utf-8")
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        features["prefers-reduced-motion"] = "reduce" if reduced else "no-preference"
        media = [{"name": name, "value": value} for name, value in features.items()]
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._browser.call("Emulation.setEmulatedMedia", features=media)
        self._browser.call("Emulation.setDeviceMetricsOverride", **size)
        self._browser.events.clear()
        self._browser.call("Page.navigate", url=file.as_uri())
        self.until(DRAWN)

    def text(self, selector):
        """Return the text of the first such element."""
        return self.value(f"document.querySelector({selector!r}).innerText")

    def count(self, selector):
        """Return the number of such elements."""
        return self.value(f"document.querySelectorAll({selector!r}).length")

    def click(self, selector):
        """Click the first such element with the mouse."""
        place = f"document.querySelector({selector!r})"
        self.value(f"{place}.scrollIntoView({{ block: 'center' }})")
        x, y = self.value(
            f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])({place}.getClientRects()[0])"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self._browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def names(self):
        """Return (role, name) of what the keyboard reaches, as assistive technology gets it."""
        nodes = self._browser.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and node["role"]["value"] in ROLES
        ]

    def requests(self):
        """Return the addresses that the page asked for."""
        events = [one for one in self._browser.events if one["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in events]

    def troubles(self):
        """Return errors of scripts, refusals of the policy and failed requests."""
        self.value("1")  # what came before has arrived
        return [event for event in self._browser.events if event.get("method") in TROUBLES]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    made = Browser(tmp_path_factory.mktemp("profile"))
    for domain in ("Runtime", "Log", "Page", "Network", "Accessibility"):
        made.call(f"{domain}.enable")
    nothing = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    made.call("Network.emulateNetworkConditions", offline=True, **nothing)
    yield made
    made.close()


@pytest.fixture
def tab(browser, tmp_path):
    return Tab(browser, tmp_path)


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    """A function: the texts of a run's trace."""

    def run(*words, model="fake"):
        file = tmp_path_factory.mktemp("trace") / "trace.jsonl"
        options = ("-m", model, "--seed", "3", "--trace", str(file), "-q")
        subprocess.run([str(quick_gencli()), "run", *options, *words], check=True, capture_output=True)
        with file.open(encoding="utf-8") as lines:
            return read_trace(lines)

    return run


@pytest.fixture(scope="session")
def texts(traced):
    """Two samples of a prompt behind four stages."""
    chain = ("--temperature", "2", "--top-k", "6", "--min-p", "0.1", "--repetition-penalty", "1.2")
    return traced(*chain, "-n", "2", "--max-tokens", "24", "the cat\nsat")
