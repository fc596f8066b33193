"""A browser without a window, driven over its DevTools protocol: no driver, no package.

Chromium reads commands from file descriptor 3 and answers on 4, as JSON that ends in a zero byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
]
TIMEOUT_S = 60


def find():
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def required():
    """Return the path of Chromium. Without one a test fails in CI, and is skipped elsewhere."""
    program = find()
    if program is None:
        missing = "there is no Chromium: `make browser` installs it as root on Debian"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return program


class Browser:
    """A running Chromium; use as a context."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.commands = os.pipe()
        self.responses, responses = os.pipe()
        os.set_blocking(self.responses, False)
        # Away from 3 and 4 before these become the child's.
        theirs = [os.dup(commands), os.dup(responses)]

        def arrange():
            high = [os.dup2(fd, 100 + n) for n, fd in enumerate(theirs)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self.profile.name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            pass_fds=(3, 4, *theirs),
            preexec_fn=arrange,
        )
        for fd in (commands, responses, *theirs):
            os.close(fd)
        self.buffer = b""
        self.number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        os.close(self.commands)
        os.close(self.responses)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def _read(self, until):
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.responses], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self.responses, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        """Call a method and return its result; events that come meanwhile are kept."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT_S
        while True:
            response = self._read(until)
            if response.get("id") == number:
                if "error" in response:
                    raise RuntimeError(f"{method}: {response['error']}")
                return response["result"]
            self.events.append(response)

    def wait(self, method, session):
        """Wait for an event and return its parameters."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    self.events.remove(event)
                    return event["params"]
            self.events.append(self._read(until))

    def open(self, path, width=1280, height=900, dark=False):
        """Open a file in a page of its own."""
        return Page(self, path, width, height, dark)


class Page:
    """An open page."""

    def __init__(self, browser, path, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        browser.wait("Page.loadEventFired", self.session)
        self.until("performance.getEntriesByName('charts drawn').length === 1")

    def call(self, method, **parameters):
        """Call a method on the page."""
        return self.browser.call(method, self.session, **parameters)

    def run(self, expression):
        """Return the value of an expression."""
        response = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in response:
            raise RuntimeError(json.dumps(response["exceptionDetails"])[:2000])
        return response["result"].get("value")

    def until(self, condition):
        """Wait, frame by frame, until a condition holds."""
        # The page's own clock gives up, so that a failure names the condition.
        held = self.run(
            "new Promise(done => { const end = performance.now() + 20000; const check = () =>"
            f" ({condition}) ? done(true) : performance.now() > end ? done(false)"
            " : requestAnimationFrame(check); check(); })"
        )
        assert held, f"never: {condition}; complaints: {self.complaints()}"

    def complaints(self):
        """Return what the page complained about: errors, warnings, refusals of its policy."""
        self.run("0")
        said = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                said.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Log.entryAdded":
                said.append(event["params"]["entry"])
            elif event["method"] == "Runtime.consoleAPICalled":
                said.append(event["params"])
        return said

    def requests(self):
        """Return the addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("sessionId") == self.session
            and event["method"] == "Network.requestWillBeSent"
        ]

    def point(self, x, y, kind="mouseMoved", **more):
        """Move the pointer, or do something with it."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        """Click."""
        self.point(x, y)
        self.point(x, y, "mousePressed", button="left", buttons=1, clickCount=1)
        self.point(x, y, "mouseReleased", button="left", clickCount=1)

    def press(self, key):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            code = {"Enter": 13, "Escape": 27, "Backspace": 8}.get(key, 0)
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def write(self, text):
        """Type a text."""
        self.call("Input.insertText", text=text)

    def box(self, selector):
        """Return left, top, width and height of an element, scrolled into sight."""
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
        )

    def screenshot(self, whole=False):
        """Return a picture of the page, as PNG."""
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            more = {"captureBeyondViewport": True, "clip": clip}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])

    def pdf(self):
        """Return the page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
