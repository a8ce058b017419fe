"""Checks of the built site in headless Chromium, at the widths of a desktop and a phone.

    PYTHONPATH=.ci:tests python -m tools.site.screens    # pictures into build/docs/screens

`make docs-screens` builds the site and does this. A finding is a page that is wider than the
window, a table or a line of code that does not fit, or a block quote: pages have none, so it is an
example that was not recognized as code.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from support.browser import Page, chromium, running_browser

from tools.site.__main__ import BUILD, SITE

DESKTOP, PHONE = 1280, 390
_PROBE = """(() => {
  const found = [];
  const name = (node) => JSON.stringify(node.innerText.slice(0, 40));
  const add = (what, node, is, has) => found.push(`${what} ${name(node)}: ${is} px in ${has} px`);
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`page: ${width} px in ${innerWidth} px`);
  for (const table of document.querySelectorAll(".md-content table")) {
    const room = (table.closest(".md-typeset__scrollwrap") ?? table.parentElement).clientWidth;
    const taken = Math.round(table.getBoundingClientRect().width);
    if (taken > room + 1) add("table", table, taken, room);
  }
  // On a phone the lines of a program scroll within their block.
  for (const code of document.querySelectorAll(".md-content pre > code")) {
    const box = code.parentElement.getBoundingClientRect();
    if (box.left < 0 || box.right > innerWidth + 1) add("block", code, box.right, innerWidth);
    const [is, has] = [code.scrollWidth, code.clientWidth];
    if (innerWidth > 600 && is > has + 1) add("code", code, is, has);
  }
  for (const quote of document.querySelectorAll(".md-content blockquote"))
    found.push(`quote ${name(quote)}`);
  return found;
})()"""
_RESULTS = """[...document.querySelectorAll("*")].find((each) => each.shadowRoot)?.shadowRoot
  .querySelectorAll("[role=listbox] a")"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; yield the address."""
    handler = functools.partial(_Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def opened(*, dark: bool = False) -> AsyncIterator[Page]:
    """Yield a page of a new Chromium; raise FileNotFoundError if there is none."""
    program = chromium()
    if program is None:
        raise FileNotFoundError("no Chromium: run `make system-deps`")
    async with running_browser(program) as browser, browser.page(DESKTOP, 900, dark=dark) as page:
        yield page


def pages_of(site: Path) -> list[str]:
    """Return the addresses of all pages, relative to the site's root."""
    folders = (file.parent.relative_to(site).as_posix() for file in site.rglob("index.html"))
    return sorted("" if folder == "." else f"{folder}/" for folder in folders)


async def findings(page: Page, width: int) -> list[str]:
    """Return what does not fit in the open page at a width, one line each."""
    await page.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=844,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    return [f"{width} px: {each}" for each in await page.evaluate(_PROBE)]


async def search(page: Page, text: str) -> list[str]:
    """Type a text into the search of the open page; return the addresses of the results."""
    await page.evaluate("document.querySelector('.md-search__button').click()")
    await page.wait_for("document.querySelector('.focus-visible')?.shadowRoot.activeElement")
    await page.command("Input.insertText", text=text)
    await page.wait_for(f"{_RESULTS}?.length")
    await page.wait_for(f"[...{_RESULTS}].every((each) => each.href.includes('?h='))")
    return list(await page.evaluate(f"[...{_RESULTS}].map((each) => each.href)"))


async def main() -> int:
    """Check every page and take its pictures; return 1 if anything does not fit."""
    folder = BUILD / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with served(SITE) as address:
        async with opened() as page:
            for place in pages_of(SITE):
                await page.open(address + place)
                for width in (DESKTOP, PHONE):
                    found = await findings(page, width)
                    count += len(found)
                    print("".join(f"{place or 'index'}: {each}\n" for each in found), end="")
                    name = f"{place.strip('/').replace('/', '-') or 'index'}-{width}.png"
                    (folder / name).write_bytes(await page.screenshot())
    print(f"{len(pages_of(SITE))} pages, {count} findings; pictures in {folder}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
