"""A real browser: headless Chromium, driven over its DevTools protocol.

Owns: finding and starting Chromium, pages with a size and a taste (dark, reduced motion), what went
wrong in them. Not here: what is tested.

Invariants: every wait has a bound; a browser ends with its block, and its profile is deleted; an
exception, a console error or a violated content policy in a page is kept in `Page.complaints`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT_S = 60.0
_ARGUMENTS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
)


def chromium() -> str | None:
    """The browser's program; `AIOPRODUCER_TEST_CHROMIUM` names another."""
    named = os.environ.get("AIOPRODUCER_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser refused a command, or JavaScript raised."""


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.complaints: list[str] = []
        self._browser = browser
        self._session = session

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._browser.command(method, self._session, **parameters)

    async def open(self, url: str) -> None:
        await self.command("Page.navigate", url=url)
        await self.wait_for("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the promise it gives."""
        answer = await self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def wait_for(self, condition: str) -> None:
        """Returns when an expression has become true in the page."""
        async with asyncio.timeout(_TIMEOUT_S):
            while not await self._fulfils(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _fulfils(self, condition: str) -> bool:
        try:
            return bool(await self.evaluate(f"Boolean({condition})"))
        except BrowserError as error:
            if "navigated" not in str(error):
                raise
            return False  # this page was left while it was asked

    async def text(self, selector: str) -> str:
        return str(await self.evaluate(f"document.querySelector({selector!r}).innerText"))

    async def screenshot(self) -> bytes:
        answer = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    def note(self, method: str, parameters: dict[str, Any]) -> None:
        """An event of this tab."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])


class Browser:
    """A running browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def command(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._connection.send(json.dumps(message))
        async with asyncio.timeout(_TIMEOUT_S):
            return await answered

    @asynccontextmanager
    async def page(
        self,
        width: int = 1280,
        height: int = 800,
        *,
        dark: bool = False,
        reduced_motion: bool = False,
        scale: float = 1,
    ) -> AsyncIterator[Page]:
        """A tab that looks as wanted, for the length of a block."""
        target = (await self.command("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.command("Target.attachToTarget", targetId=target, flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await page.command(f"{domain}.enable")
        await page.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        tastes = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if reduced_motion else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in tastes.items()]
        await page.command("Emulation.setEmulatedMedia", features=features)
        try:
            yield page
        finally:
            await self.command("Target.closeTarget", targetId=target)
            del self._pages[attached["sessionId"]]

    async def listen(self) -> None:
        """Reads what the browser says, until it ends."""
        async for text in self._connection:
            message = json.loads(text)
            answered = self._waiting.pop(message.get("id"), None)
            if answered is None:
                page = self._pages.get(message.get("sessionId", ""))
                if page is not None:
                    page.note(message.get("method", ""), message.get("params", {}))
            elif answered.done():
                continue
            elif "error" in message:
                answered.set_exception(BrowserError(json.dumps(message["error"])))
            else:
                answered.set_result(message["result"])


@asynccontextmanager
async def running_browser(program: str) -> AsyncIterator[Browser]:
    """A browser with a fresh profile for the length of a block."""
    profile = Path(tempfile.mkdtemp(prefix="aioproducer-browser-"))
    arguments = [*_ARGUMENTS, f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # it refuses to be root's otherwise
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        address = await _address(profile / "DevToolsActivePort", process)
        async with connect(address, max_size=None, proxy=None) as connection:
            browser = Browser(connection)
            listening = asyncio.create_task(browser.listen())
            try:
                yield browser
            finally:
                listening.cancel()
                await asyncio.wait({listening})
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(_TIMEOUT_S):
            await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    """Return the address of the browser, which writes port and path into a file of its profile."""
    async with asyncio.timeout(_TIMEOUT_S):
        while process.returncode is None:
            if (lines := _lines(file))[1:]:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.02)
    raise BrowserError(f"the browser ended with exit code {process.returncode}")


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split() if file.exists() else []
