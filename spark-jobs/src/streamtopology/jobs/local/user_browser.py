"""The browser of the user who gave a command."""

from __future__ import annotations

import webbrowser


def opened(address: str) -> bool:
    """Open a page; returns False where there is no browser but one that would take the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    takes_terminal = type(browser) is webbrowser.GenericBrowser  # its subclasses run in windows of their own
    return not takes_terminal and browser.open(address)
