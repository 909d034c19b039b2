"""Pages opened in headless Chromium over the DevTools protocol, with the standard library alone."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One browser with one page. `events` holds what was told since the page was opened."""

    def __init__(self, folder: Path):
        ours, theirs = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; the shell puts the pipes there.
        script = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        command = ["bash", "-c", script, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        with (folder.parent / "chromium.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, pass_fds=(ours[0], theirs[1]))
        os.close(ours[0])
        os.close(theirs[1])
        self._commands, self._answers = os.fdopen(ours[1], "wb"), os.fdopen(theirs[0], "rb")
        self._number, self._session, self.events = 0, None, []
        target = next(info for info in self.send("Target.getTargets")["targetInfos"] if info["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._commands.write(b'{"id": 0, "method": "Browser.close"}\0')
        self._commands.close()
        self._process.wait(timeout=30)
        self._answers.close()

    def send(self, method: str, **parameters) -> dict:
        """The answer to a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, page: Path | str, width: int, height: int = 900, dark: bool = False, print_: bool = False) -> None:
        """Load a file or an address in a window of `width` CSS pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="print" if print_ else "screen", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < deadline, f"{page} did not load"
            self.events.append(self._read())

    def evaluate(self, expression: str):
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def parameters(self, method: str) -> list[dict]:
        """The parameters of the events of one kind since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def _read(self) -> dict:
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser ended"
            message += byte
        return json.loads(message)
