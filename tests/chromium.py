"""A real Chromium for tests, driven over a pipe: pages of any width, light, dark or on paper, measured and photographed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from programs import need
from until import LIMIT_S

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """One open page. `console` is what the browser logged for it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        self.console: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def open(self, file: Path) -> None:
        """Load a file and wait until it is there."""
        self.console.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.browser.wait_for("Page.loadEventFired", self.session)
        self.run("document.fonts.ready.then(() => 1)")

    def look(
        self, width: int, *, height: int = 900, dark: bool = False, paper: bool = False
    ) -> None:
        """Show the page in a window of `width` CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme]
        )

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode={"Tab": 9}[key],
            )

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def photograph(self, file: Path, *, whole: bool = True, scale: float = 1.0) -> None:
        """Write the page as a PNG, smaller by `scale`: the whole of it, or what the window shows."""
        size = "[document.documentElement.clientWidth, {}]".format(
            "document.documentElement.scrollHeight" if whole else "innerHeight"
        )
        width, height = self.run(size)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
        reply = self.call("Page.captureScreenshot", captureBeyondViewport=whole, clip=clip)
        file.write_bytes(base64.b64decode(reply["data"]))

    def paper(self, file: Path) -> None:
        """Write the page as a PDF, as the browser prints it."""
        reply = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        file.write_bytes(base64.b64decode(reply["data"]))


class Browser:
    """A running Chromium. Commands go in as JSON on descriptor 3, answers and events come out on 4, each ended by a zero byte."""

    def __init__(self, chromium: str, profile: Path) -> None:
        inner_in, self._out = os.pipe()
        self._in, inner_out = os.pipe()
        # Descriptors 3 and 4 may be taken here, so a shell puts ours there.
        script = f'exec "$@" 3<&{inner_in} 4>&{inner_out}'
        # Chromium writes in HOME, too: crash reports, settings of the desktop.
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                script,
                "chromium",
                chromium,
                *OPTIONS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            env=env | {"HOME": str(profile)},
            pass_fds=(inner_in, inner_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inner_in)
        os.close(inner_out)
        self._number, self._buffer = 0, b""
        self._pages: dict[str, Page] = {}
        self._seen: list[dict[str, Any]] = []

    def page(self) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        return page

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {
            "id": number,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == number:
                assert "error" not in reply, (method, reply["error"])
                return reply["result"]

    def wait_for(self, event: str, session: str) -> None:
        while not any(
            message["method"] == event and message.get("sessionId") == session
            for message in self._seen
        ):
            self._next()
        self._seen.clear()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium ended"
            self._buffer += more
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._seen.append(message)
            page = self._pages.get(message.get("sessionId", ""))
            if page and message["method"] in (
                "Log.entryAdded",
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
            ):
                page.console.append(json.dumps(message["params"]))
        return message

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        for end in (self._out, self._in):
            os.close(end)
        self._process.wait(LIMIT_S)


@contextlib.contextmanager
def running(profile: Path) -> Iterator[Browser]:
    browser = Browser(need("chromium", "chromium-browser", "google-chrome"), profile)
    try:
        yield browser
    finally:
        browser.close()
