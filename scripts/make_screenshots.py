"""Makes the pictures of the README: docs/images/report.png and docs/images/top.png.

Needs tmux, Chromium (`make browser`) and the font DejaVu Sans Mono.
"""

import hashlib
import html
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402

TRACE = ROOT / "fixtures" / "traces" / "train_gpt-t4.trace"
RECORDING = ROOT / "fixtures" / "top" / "demo.jsonl"
IMAGES = ROOT / "docs" / "images"
REPORT = IMAGES / "report.png"
# The README shows the rest as text.
CROP = """
for (const section of document.querySelectorAll("#sections > section, #help, footer"))
  if (!["bars", "next", "tree", "lifetimes"].includes(section.dataset.type)) section.remove();
"""
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #14171c }
pre { margin: 0; padding: 14px; width: max-content; color: #d8dce2;
      font: 14px/19px "DejaVu Sans Mono" }
</style><pre>%s</pre><script>performance.mark("charts drawn")</script>"""
COLORS = {"2": "#4fb477", "3": "#d9a441", "4": "#5b9bd5", "1": "#e0605a", "6": "#45b5c4"}
STYLES = {"1": "font-weight:bold", "2": "opacity:.65", "4": "text-decoration:underline"}


# The chunk of a picture that tells what text it shows: a keyword and the digest of the text.
KEYWORD = b"Text digest\0"


def open_report(chromium, folder):
    """Return the part of a report that the picture shows, open in a browser."""
    report = folder / "report.html"
    # The recorded program does not fit, so the exit code is 1.
    command = ["vramfit", "report", TRACE, "--html", report]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    page = chromium.open(report, height=2000)
    page.run(CROP)
    return page


def text_digest(page):
    """Return the digest of the text that a page shows."""
    return hashlib.sha256(page.run("document.body.innerText").encode()).hexdigest().encode()


def add_digest(picture, digest):
    """Return a PNG with the digest of its text in a chunk of its own, behind the header."""
    chunk = b"tEXt" + KEYWORD + digest
    chunk = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    end_of_header = 8 + 25
    return picture[:end_of_header] + chunk + picture[end_of_header:]


def shows_text_of(picture, page):
    """Return whether a PNG was made of a page with the same text."""
    return b"tEXt" + KEYWORD + text_digest(page) in picture


def capture_terminal(folder):
    """Return the first screen of the recording, with its escape sequences."""
    first = folder / "recording.jsonl"
    first.write_text(RECORDING.read_text().splitlines(keepends=True)[0])
    tmux = ["tmux", "-L", f"vramfit-{folder.name}"]
    command = f"TERM=xterm-256color vramfit top --replay {first.name}"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", "110", "-y", "30", command], cwd=folder, check=True
    )
    try:
        for _ in range(50):
            screen = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True
            ).stdout
            if "q quit" in screen and "finished" in screen:
                return screen
            time.sleep(0.2)
        raise SystemExit(f"`{command}` has not finished its screen after 10 seconds:\n{screen}")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def convert_to_html(screen):
    """Return the text of a terminal as HTML."""
    rows = re.sub(r"\n{3,}", "\n\n", screen.rstrip())
    active, spans = {}, []
    for text, codes in re.findall(r"([^\x1b]+)|\x1b\[([0-9;]*)m", rows):
        if text:
            spans.append(f'<span style="{";".join(active.values())}">{html.escape(text)}</span>')
        elif color := re.fullmatch(r"38;5;(\d+)", codes):
            active["color"] = f"color:{COLORS[color[1]]}"
        else:
            for code in codes.split(";"):
                if code in ("", "0"):
                    active = {}
                elif code == "39":
                    active.pop("color", None)
                elif code == "7":
                    active["7"] = "background:#d8dce2;color:#14171c"
                elif code in STYLES:
                    active[code] = STYLES[code]
    return TERMINAL % "".join(spans)


def capture_body(page):
    """Return the page as PNG, down to the end of its contents."""
    width, height = page.run(
        "[innerWidth, Math.ceil(document.body.getBoundingClientRect().bottom)]"
    )
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    return page.screenshot()


def main():
    """Write both pictures."""
    program = browser.find()
    if program is None:
        raise SystemExit("there is no Chromium: `make browser`")
    with tempfile.TemporaryDirectory() as folder, browser.Browser(program) as chromium:
        page = open_report(chromium, Path(folder))
        REPORT.write_bytes(add_digest(capture_body(page), text_digest(page)))
        terminal = Path(folder) / "top.html"
        terminal.write_text(convert_to_html(capture_terminal(Path(folder))))
        page = chromium.open(terminal, width=960)
        (IMAGES / "top.png").write_bytes(capture_body(page))


if __name__ == "__main__":
    main()
