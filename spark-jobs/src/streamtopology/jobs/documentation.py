"""The address of a page of the documentation: in the checkout that this is part of, else on the site."""

from __future__ import annotations

from pathlib import Path

SITE = "https://streamtopology.dev"
_CHECKOUT = Path(__file__).parents[4] / "docs"


def address(page: str, anchor: str = "") -> str:
    """The address of `page`, such as `guide/manifest`; `anchor` is a heading of it, with its `#`."""
    if (_CHECKOUT / f"{page}.md").is_file():
        return f"{_CHECKOUT.as_uri()}/{page}.md{anchor}"
    return f"{SITE}/{page}.html{anchor}"
