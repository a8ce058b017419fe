"""Find links in the built site that lead to no page, or to no anchor of it.

Addresses of other hosts are not requested.
"""

from __future__ import annotations

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ADDRESSES = {"a": "href", "img": "src", "link": "href", "script": "src"}


class _Page(HTMLParser):
    """The anchors and the local addresses of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        if address := given.get(_ADDRESSES.get(tag, "")):
            self.addresses.append(address)


def broken_links(site: Path) -> list[str]:
    """Return the dead links, one line each: the page and the address."""
    pages = {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }
    broken = []
    for place, page in pages.items():
        for address in dict.fromkeys(page.addresses):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or place == "404.html":
                continue
            found = _resolved(site, place, unquote(parts.path))
            if found is None:
                broken.append(f"{place}: {address} (no such file)")
            elif found not in pages:
                continue
            elif unquote(parts.fragment) not in pages[found].anchors | {"", "__top"}:
                broken.append(f"{place}: {address} (no such anchor)")
    return broken


def _resolved(site: Path, place: str, path: str) -> str | None:
    """The file that an address on a page means, from the site's root."""
    if not path:
        return place
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    for candidate in (joined, posixpath.join(joined, "index.html")):
        if (site / candidate).is_file():
            return posixpath.normpath(candidate)
    return None
