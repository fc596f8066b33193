"""The check of programs that use other people's libraries, without those libraries.

The programs themselves run with `make wild`.
"""

import copy
import sys
import tomllib
from types import SimpleNamespace

import pytest
from commands import ROOT

sys.path.append(str(ROOT / "scripts" / "verify"))
import environments
import wild

MANIFEST = tomllib.loads(wild.MANIFEST.read_text())
PROGRAM = {
    "name": "toy",
    "project": "toy",
    "gpu": "t4",
    "fits": True,
    "step": "jit_step",
    "owners": ["parameters"],
    "no_owners": ["gradients"],
    "bytes": {"parameters": 700},
}
SUMMARY = {
    "fits": True,
    "step": "jit_step",
    "step_evidence": "state_returned",
    "peak_bytes": 1000,
    "owners": [{"kind": "parameters", "bytes": 700}, {"kind": "batch", "bytes": 300}],
    "attribution": {"total_bytes": 1000, "program": "jit_step"},
    "leaks": [],
}
PLAN = {"least_bytes": 900, "most_bytes": 1000}


def differences(summary=SUMMARY, plan=PLAN, code=0):
    done = SimpleNamespace(returncode=code, stderr="Traceback")
    return list(wild.differences(PROGRAM, summary, plan, done))


def test_what_is_expected_is_no_difference():
    assert differences() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.update(fits=None), "fits is None"),
        (lambda a: a.update(step="jit_init"), "the step is jit_init"),
        (lambda a: a.update(step_evidence="most_memory"), "the step is None"),
        (lambda a: a["owners"][0].update(kind="other_state"), "no parameters"),
        (lambda a: a["owners"][1].update(kind="gradients"), "that the program does not have"),
        (lambda a: a["owners"][0].update(bytes=699), "not 700"),
        (lambda a: a["attribution"].update(total_bytes=1001), "do not add up"),
        (lambda a: a["leaks"].append({"site": "train.py:3"}), "leaks"),
        (lambda a: a.update(peak_bytes=899), "899 bytes, and the step alone plans 900"),
        (lambda a: a.update(peak_bytes=1 << 20), "1048576 bytes in the step"),
    ],
)
def test_each_difference_is_reported(change, words):
    summary = copy.deepcopy(SUMMARY)
    change(summary)
    assert words in " ".join(differences(summary))


def test_a_program_that_failed_or_planned_nothing_is_reported():
    assert "exit code 1: Traceback" in " ".join(differences(code=1))
    assert "has not written down" in " ".join(differences(plan=None))


def test_the_manifest_is_whole():
    programs = MANIFEST["program"]
    names = [program["name"] for program in programs]
    assert sorted(names) == sorted({path.stem for path in wild.PROGRAMS.glob("*.py")} - {"plan"})
    assert len(names) >= 25
    assert len({program["project"] for program in programs}) >= 12
    for program in programs:
        noting = "plan.note(" in (wild.PROGRAMS / f"{program['name']}.py").read_text()
        assert noting == program.get("planned", True), program["name"]
    assert all(entry["reason"] for entry in MANIFEST["cannot"])


def test_an_environment_is_made_once_for_a_list_of_packages(tmp_path, capfd):
    packages, folder = tmp_path / "packages.txt", tmp_path / "env"
    packages.write_text("# nothing\n")

    def make():
        command = environments.make_environment(folder, packages, [sys.executable], "nothing")
        assert command == [str(folder / "bin" / "python")]
        return capfd.readouterr().out

    assert make() == "installing nothing\n"
    assert make() == ""
    packages.write_text("# another list\n")
    assert make() == "installing nothing\n"
    packages.write_text("no such package\n")
    with pytest.raises(SystemExit, match="nothing could not be installed; see above"):
        make()
