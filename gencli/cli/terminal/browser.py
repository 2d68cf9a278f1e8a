"""Opens an address in the browser of the person who started the command."""

from __future__ import annotations

import os
import webbrowser

__all__ = ["open_browser"]


def open_browser(address: str) -> bool:
    """Open an address; return whether a browser opened it. May block until that browser ends.

    A browser in the terminal is used only if the variable BROWSER names it, because it would take over the
    terminal.
    """
    try:
        browser = webbrowser.get()
        if type(browser) is webbrowser.GenericBrowser and "BROWSER" not in os.environ:
            return False
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
