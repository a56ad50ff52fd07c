"""A headless Chromium that the tests drive through its DevTools pipe: keys, sizes, what went wrong.

Two pipes carry JSON messages that end in a zero byte. The browser has no network, and what a page
asks for or writes to its console is collected.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome")
                 if (found := shutil.which(name))), None)  # fmt: skip

_CODES = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Backspace": 8, "Enter": 13,
          "Tab": 9, "ArrowDown": 40}  # fmt: skip

# Edges are smoothed a little differently by each release: only what the eye sees counts.
_SHARE_OF_OTHER_PIXELS = """async (one, other) => {
    const pixels = async url => {
        const picture = new Image();
        picture.src = url;
        await picture.decode();
        const { width, height } = picture;
        const drawing = new OffscreenCanvas(width, height).getContext("2d");
        drawing.drawImage(picture, 0, 0);
        return { width, height, data: drawing.getImageData(0, 0, width, height).data };
    };
    const [a, b] = [await pixels(one), await pixels(other)];
    if (a.width !== b.width || a.height !== b.height) return 1;
    let differ = 0;
    for (let at = 0; at < a.data.length; at += 4)
        differ += [0, 1, 2].some(part => Math.abs(a.data[at + part] - b.data[at + part]) > 32);
    return differ / (a.width * a.height);
}"""


class Browser:
    """One tab. `requests` are addresses that were asked for besides the pages that were opened."""

    def __init__(self, folder: Path) -> None:
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        arguments = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ]  # fmt: skip
        # Chromium reads its commands from 3 and writes its answers to 4.
        line = f'exec "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(  # noqa: S603 -- a browser, on pages of ours
            ["/bin/bash", "-c", line, "browser", *arguments], pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._rest, self._last, self._session = b"", 0, None
        self.console: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        (target,) = [one["targetId"] for one in targets if one["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def show(self, width: int, scheme: str = "light", height: int = 900) -> None:
        """Set the width in pixels, and `light` or `dark`."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self._events.clear()
        self._call("Page.navigate", url=page.as_uri())
        self._wait_for("Page.loadEventFired")
        self.requests.remove(page.as_uri())

    def press(self, *keys: str) -> None:
        """Press keys as a keyboard does: a character, or a name such as `ArrowLeft`."""
        for key in keys:
            is_text = len(key) == 1
            about = {"key": key, "windowsVirtualKeyCode": _CODES.get(key, ord(key[0].upper()))}
            text = key if is_text else "\r" if key == "Enter" else ""
            down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
            self._call("Input.dispatchKeyEvent", **down, **about)
            self._call("Input.dispatchKeyEvent", type="keyUp", **about)

    def value(self, expression: str) -> object:
        """What an expression gives in the page; a promise is waited for."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """The words that an element shows."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fits(self) -> bool:
        """Whether nothing sticks out to the right."""
        return bool(self.value("document.documentElement.scrollWidth <= innerWidth"))

    def picture(self) -> bytes:
        """A PNG of the whole page at the width that is shown."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def write_in(self, font: Path) -> None:
        """Write all text of the page in this font, whatever its own style and policy say."""
        data = base64.b64encode(font.read_bytes()).decode()
        style = (
            f"@font-face {{ font-family: given; src: url(data:font/ttf;base64,{data}) }}"
            "*, *::before, *::after { font-family: given !important }"
        )
        self._call("Page.setBypassCSP", enabled=True)
        self._events.clear()
        self._call("Page.reload")
        self._wait_for("Page.loadEventFired")
        self.value(
            "(async () => { const style = document.createElement('style');"
            f"style.textContent = {json.dumps(style)}; document.head.append(style);"
            "await document.fonts.load('16px given'); await document.fonts.ready; })()"
        )

    def share_of_other_pixels(self, one: bytes, other: bytes) -> float:
        """How much of two PNGs differs visibly, from 0 to 1; 1 if their sizes do."""
        urls = ["data:image/png;base64," + base64.b64encode(png).decode() for png in (one, other)]
        return float(str(self.value(f"({_SHARE_OF_OTHER_PIXELS})(...{json.dumps(urls)})")))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(30)
        os.close(self._to)
        os.close(self._from)

    def _call(self, method: str, **parameters: object) -> dict:
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._take()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _wait_for(self, event: str) -> None:
        while event not in self._events:
            self._take()

    def _take(self) -> dict:
        """The next message; events are noted."""
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser has ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        method, about = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.console.append(json.dumps(about))
        return message
