"""How large is the page of 100,000 buffers, and how long does it take to open?

Counted from the beginning of the navigation: the document is read (DOMContentLoaded, at the end of
which the script has laid everything out), and the pictures are drawn (the frame after). The
browser is Chromium without a window and without a GPU; the file comes from the disk cache. Goals:
at most 5 MB, at most one second on a machine that does nothing else.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import print_load

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402

BUFFERS = 100_000
ROUNDS = 7
TIMES = (
    "[performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd,"
    " performance.getEntriesByName('charts drawn')[0].startTime]"
)


def main():
    """Print size and times."""
    program = browser.find()
    if program is None:
        raise SystemExit("there is no Chromium: `make browser`")
    print_load("before")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = ["cargo", "run", "--quiet", "-p", "vramfit-analysis"]
        command += ["--example", "sample_report", "--", str(BUFFERS)]
        page.write_bytes(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        size = page.stat().st_size
        with browser.Browser(program) as chromium:
            # The first page also waits for the browser to start.
            chromium.open(page)
            rounds = [chromium.open(page).run(TIMES) for _ in range(ROUNDS)]
    read, drawn = zip(*rounds, strict=True)
    print(f"{'size':<15} {size / 1e6:.2f} MB for {BUFFERS:,} buffers")
    for name, times in (("document read", read), ("charts drawn", drawn)):
        print(
            f"{name:<15} {statistics.median(times):.0f} ms  (median of {ROUNDS},"
            f" {min(times):.0f} to {max(times):.0f})"
        )


if __name__ == "__main__":
    main()
