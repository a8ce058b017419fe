"""The built site: anchors and search entries of options and errors, and its look in Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.browser import chromium
from tools.site.__main__ import build
from tools.site.errors import every_error
from tools.site.screens import DESKTOP, PHONE, findings, opened, pages_of, search, served
from tools.site.versions import publish

from aioproducer.config import OPTIONS

pytest.importorskip("zensical", reason="needs zensical (make venv)")
needs_chromium = pytest.mark.skipif(chromium() is None, reason="no Chromium (make system-deps)")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    assert build(folder) == 0
    return folder / "site"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "anchors"),
    [
        ("reference/options/", [*OPTIONS]),
        ("reference/errors/", [error.__name__.lower() for error in every_error()]),
    ],
)
def test_every_option_and_error_has_a_heading_and_a_search_entry(
    site: Path, place: str, anchors: list[str]
) -> None:
    html = (site / place / "index.html").read_text(encoding="utf-8")
    headings = re.findall(r'<h3 id="([^"]+)"', html)
    assert len(anchors) > 50
    assert set(anchors) <= set(headings)
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {item["location"] for item in index["items"]}
    assert {f"{place}#{anchor}" for anchor in anchors} <= found


def test_examples_of_the_api_are_code(site: Path) -> None:
    html = (site / "reference/api/producer/index.html").read_text(encoding="utf-8")
    assert "Examples:" in html
    example = html.split("Examples:", 1)[1][:1500]
    assert '<pre><span></span><code><span class="gp">' in example


@pytest.mark.slow
@needs_chromium
async def test_tables_and_code_fit_on_a_desktop_and_a_phone(site: Path) -> None:
    found = []
    with served(site) as address:
        async with opened() as page:
            for place in pages_of(site):
                await page.open(address + place)
                for width in (DESKTOP, PHONE):
                    found += [f"{place}: {each}" for each in await findings(page, width)]
            assert page.complaints == []
    assert not found, "\n".join(found)


@needs_chromium
async def test_what_does_not_fit_is_found(tmp_path: Path) -> None:
    wide = "x" * 400
    (tmp_path / "index.html").write_text(
        '<!doctype html><body><article class="md-content" style="width: 380px; overflow-x: auto">'
        f"<div><table><tr><td>{wide}</td></tr></table></div>"
        f'<pre style="overflow-x: auto"><code style="display: block">{wide}</code></pre>'
        "<blockquote>app = FastAPI()</blockquote></article>"
    )
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide/index.html").write_text(f"<!doctype html><body>{wide}")
    with served(tmp_path) as address:
        async with opened() as page:
            await page.open(address)
            kinds = [each.split()[2] for each in await findings(page, DESKTOP)]
            assert {"table", "quote"} <= set(kinds)
            await page.open(f"{address}wide/")
            assert (await findings(page, DESKTOP))[0].startswith("1280 px: page:")


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("linger_ms", "reference/options/#linger_ms"),
        ("delivery.timeout.ms", "reference/options/#delivery_timeout_ms"),
        ("acks", "reference/options/#acks"),
        ("DeliveryTimeoutError", "reference/errors/#deliverytimeouterror"),
    ],
)
async def test_search_finds_the_option_or_error_first(site: Path, text: str, first: str) -> None:
    with served(site) as address:
        async with opened() as page:
            await page.open(address)
            result = (await search(page, text))[0]
    assert re.sub(r"\?h=[^#]*", "", result).removeprefix(address) == first


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
async def test_site_follows_the_color_scheme_of_the_system(site: Path, dark: bool) -> None:
    with served(site) as address:
        async with opened(dark=dark) as page:
            await page.open(address)
            await page.wait_for("document.body.dataset.mdColorScheme")
            scheme = await page.evaluate("document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default")


@needs_chromium
async def test_published_pages_offer_the_other_versions_and_lead_to_the_same_page(
    site: Path, tmp_path: Path
) -> None:
    for version in ("0.1.0", "0.2.0"):
        publish(site, tmp_path, version)
    choice = "document.querySelector('select.versions')"
    with served(tmp_path) as address:
        async with opened() as page:
            await page.open(f"{address}0.1/sending/")
            await page.wait_for(choice)
            offered = await page.evaluate(f"[...{choice}.options].map((each) => each.value)")
            assert (offered, await page.evaluate(f"{choice}.value")) == (["0.2", "0.1"], "0.1")
            assert await findings(page, PHONE) == []
            await page.evaluate(
                # Later, so that the page is not left before it has answered.
                f"{choice}.value = '0.2';"
                f"setTimeout(() => {choice}.dispatchEvent(new Event('change'))); null"
            )
            await page.wait_for("location.pathname === '/0.2/sending/'")
            assert page.complaints == []
