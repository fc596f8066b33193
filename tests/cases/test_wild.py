"""Programs as people write them, each the smallest form of a fault seen with a public one."""

import html
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from commands import run_vramfit

PROGRAMS = Path(__file__).parent / "wild"
EXPECTED = tomllib.loads((PROGRAMS / "expected.toml").read_text())
# What is asked of the importing of IPython does not need IPython.
IPYTHON = {"IPython/__init__.py": "", "IPython/display.py": "def display(*_): pass\n"}


def test_every_program_has_an_answer():
    assert sorted(EXPECTED) == sorted(path.stem for path in PROGRAMS.glob("*.py"))


def joined(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", EXPECTED)
def test_the_report_is_right(name, tmp_path):
    expected = EXPECTED[name]
    shutil.copy(PROGRAMS / f"{name}.py", tmp_path)
    for file, text in IPYTHON.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    outputs = ["--json", "answer.json", "--report", "page.html", "--trace", "run.trace"]
    command = ["dryrun", "--full", "--gpu", expected["gpu"], *outputs, f"{name}.py"]
    done = run_vramfit(*command, cwd=tmp_path, code=expected.get("exit", 0))
    answer = json.loads((tmp_path / "answer.json").read_text())
    owners = {owner["kind"] for owner in answer["owners"]}
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
    program = PROGRAMS / "sort_warning.py"
    done = run_vramfit("dryrun", "--gpu", "h100-80g", "--quiet", program, cwd=tmp_path, code=0)
    assert (done.stdout, done.stderr) == ("(60000,)\n", "")
