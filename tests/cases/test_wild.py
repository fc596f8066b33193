"""Programs as people write them, against the right answer.

`wild/`: each the smallest form of a fault seen with a public program. `reports/`: questions of JAX
users in public threads.
"""

import html
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from commands import run_vramfit

FOLDERS = [Path(__file__).parent / "wild", Path(__file__).parent / "reports"]
EXPECTED = {
    name: {"path": folder / f"{expected.get('program', name)}.py"} | expected
    for folder in FOLDERS
    for name, expected in tomllib.loads((folder / "expected.toml").read_text()).items()
}
# What is asked of the importing of IPython does not need IPython.
IPYTHON = {"IPython/__init__.py": "", "IPython/display.py": "def display(*_): pass\n"}


def test_every_program_has_an_answer():
    programs = {path for folder in FOLDERS for path in folder.glob("*.py")}
    assert {expected["path"] for expected in EXPECTED.values()} == programs


def joined(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", EXPECTED)
def test_the_report_is_right(name, tmp_path):
    expected = EXPECTED[name]
    path = expected["path"]
    shutil.copy(path, tmp_path)
    for file, text in IPYTHON.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    outputs = ["--json", "summary.json", "--html", "page.html", "--trace", "run.trace"]
    options = ["--full", "--gpu", expected["gpu"], *expected.get("options", [])]
    command = ["dryrun", *options, *outputs, path.name, *expected.get("arguments", [])]
    settings, code = expected.get("settings"), expected.get("exit", 0)
    done = run_vramfit(*command, env=settings, cwd=tmp_path, code=code)
    summary = json.loads((tmp_path / "summary.json").read_text())
    owners = {owner["kind"] for owner in summary["owners"]}
    assert owners >= set(expected.get("owners", []))
    again = run_vramfit("report", "--full", "run.trace", cwd=tmp_path)
    page = joined(html.unescape((tmp_path / "page.html").read_text()))
    for text in (joined(done.stderr), joined(again.stdout + again.stderr)):
        for part in expected.get("says", []):
            assert part in text, text
        for part in expected.get("lacks", []):
            assert part not in text
    for part in expected.get("lacks", []):
        assert part not in page
    if "files" in expected:
        assert [*tmp_path.glob(expected["files"])]


def test_a_quiet_run_of_a_sort_says_nothing(tmp_path):
    program = EXPECTED["sort_warning"]["path"]
    done = run_vramfit("dryrun", "--gpu", "h100-80g", "--quiet", program, cwd=tmp_path, code=0)
    assert (done.stdout, done.stderr) == ("(60000,)\n", "")
