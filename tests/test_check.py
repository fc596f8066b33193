"""`vramfit check` in projects with a git history, as people use it."""

import json
import os
import sys

import pytest
from checking import GROWN, GROWN_LINE, PROGRAM, Project
from commands import COMMAND_PATH


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def project(tmp_path, cache):
    folder = tmp_path / "project"
    folder.mkdir()
    project = Project(folder, cache)
    project.write("train.py", PROGRAM)
    project.write("vramfit.toml", project.entry())
    return project


UNCHANGED = (
    "unchanged: train on l4; each dry run ended after 3 calls of jit_step; what comes after them "
    "was not measured\n"
)


@pytest.fixture
def accepted(project):
    """A project whose figures were accepted on its main branch."""
    project.check("--update")
    project.git("init", "-q", "-b", "main")
    project.commit("first")
    return project


@pytest.mark.fast
def test_the_same_program_passes_to_the_byte(accepted):
    done = accepted.check()
    assert done.stdout == UNCHANGED
    # What a machine sets for JAX is no part of the program.
    noisy = {"JAX_PLATFORMS": "cpu", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1", "PYTHONHASHSEED": "7"}
    done = accepted.check(env=noisy)
    assert "unchanged: train on l4" in done.stdout
    assert "not used: `JAX_PLATFORMS`, `XLA_PYTHON_CLIENT_MEM_FRACTION`" in done.stdout
    assert accepted.rows("--no-cache")[0]["outcome"] == "unchanged"


def test_growth_names_the_line_and_the_way_to_accept_it(accepted):
    accepted.write("train.py", GROWN)
    done = accepted.check(code=1)
    lines = done.stdout.splitlines()
    assert len(lines) <= 20
    assert lines[0].startswith("train on l4: peak ")
    assert "more than accepted" in lines[0]
    assert f"train.py:{GROWN_LINE} (loss)" in done.stdout
    assert "toolchain 0 B" in done.stdout
    assert lines[-1] == "to accept what was measured: vramfit check --update train"
    updated = accepted.check("--update").stdout
    assert "accepted: train on l4: peak " in updated
    assert " (was " in updated
    done = accepted.check()
    assert "in this branch, accepted" in done.stdout
    accepted.commit("second")
    assert accepted.check().stdout.startswith("unchanged: train on l4")


DECIDING = """
import jax.numpy as jnp

x = jnp.sin(jnp.arange(1 << 26))
if float(jnp.sort(x)[0]) > 0.5:
    x = x + x[::-1]
"""


def test_accepted_figures_say_what_they_hold_for(project):
    project.write("train.py", DECIDING)
    updated = " ".join(project.check("--update").stdout.split())
    assert "accepted: train on l4: peak " in updated
    assert "(new), if `float(jnp.sort(x)[0])" in updated
    assert ", if `float(jnp.sort(x)[0])" in " ".join(project.check().stdout.split())


def test_lines_are_those_of_today_also_from_the_cache(accepted):
    accepted.write("train.py", GROWN)
    accepted.check(code=1)
    # The same programs, which lie in the cache of compiled programs with their lines.
    accepted.write("train.py", "# One line.\n# Another.\n" + GROWN)
    done = accepted.check(code=1)
    assert f"train.py:{GROWN_LINE + 2} (loss)" in done.stdout
    assert f"train.py:{GROWN_LINE} (loss)" not in done.stdout


def test_without_a_cache_the_merge_base_is_run(accepted, tmp_path):
    accepted.git("checkout", "-qb", "branch")
    accepted.write("train.py", GROWN)
    accepted.commit("grow")
    fresh = {"XDG_CACHE_HOME": str(tmp_path / "empty")}
    (row,) = accepted.rows(code=1, env=fresh)
    growth = row["growth"]
    assert growth["compared_with"].startswith("commit ")
    assert growth["toolchain_bytes"] == 0
    difference = row["measured"]["peak_bytes"] - row["accepted"]["peak_bytes"]
    assert growth["code_bytes"] == difference > 0
    assert f"train.py:{GROWN_LINE} (loss)" in growth["lines"][0]["site"]
    # Nothing of the checkout is left.
    assert len(accepted.git("worktree", "list").splitlines()) == 1


def test_figures_that_shrink_pass(accepted):
    accepted.write("train.py", PROGRAM.replace("(256, 1024)", "(128, 1024)"))
    done = accepted.check()
    assert "smaller than accepted" in done.stdout
    assert "to accept the smaller figures: vramfit check --update" in done.stdout


@pytest.mark.parametrize(
    ("keys", "outcome", "code"),
    [
        ({"tolerance": "90%"}, "within_tolerance", 0),
        ({"tolerance": "1KiB"}, "larger", 1),
        ({"tolerance": "90%", "max": "10MiB"}, "over_limit", 1),
        ({"tolerance": "90%", "spare": "99.99%"}, "over_limit", 1),
        ({"tolerance": "90%", "fraction": 0.0007}, "does_not_fit", 1),
    ],
)
def test_limits_of_an_entry(accepted, keys, outcome, code):
    accepted.write("train.py", GROWN)
    accepted.write("vramfit.toml", accepted.entry(**keys))
    (row,) = accepted.rows(code=code)
    assert (row["outcome"], row["passes"]) == (outcome, code == 0), row


def test_limits_alone_need_no_lock_file(project):
    project.write("vramfit.toml", project.entry(max="1GiB"))
    assert project.rows("--no-lock")[0]["outcome"] == "within_limits"
    project.write("vramfit.toml", project.entry(max="1MiB"))
    assert project.rows("--no-lock", code=1)[0]["outcome"] == "over_limit"
    done = project.check(code=2)
    assert "there is no `vramfit.lock`" in done.stderr


def test_an_entry_without_a_line_is_unknown(accepted):
    entries = accepted.entry() + accepted.entry("wide", [sys.executable, "train.py", "-"])
    accepted.write("vramfit.toml", entries)
    rows = accepted.rows(code=2)
    assert [row["outcome"] for row in rows] == ["unchanged", "not_accepted"]


def test_a_program_that_fails_is_unknown_and_says_why(accepted):
    accepted.write("train.py", PROGRAM + "\n    raise ValueError('no data here')\n")
    accepted.write("vramfit.toml", accepted.entry(steps=100))
    (row,) = accepted.rows(code=2)
    assert row["outcome"] == "failed"
    assert "no data here" in row["reason"]
    done = accepted.check("--update", code=2)
    assert "not accepted: train on l4" in done.stdout


def test_a_program_that_varies_is_not_accepted(project):
    random = PROGRAM.replace("(256, 1024)", "(int.from_bytes(__import__('os').urandom(2)), 1024)")
    project.write("train.py", random)
    done = project.check("--update", code=2)
    assert "two runs differ: peak " in done.stdout
    assert "train l4" not in project.lock()


def test_time_that_is_over_is_unknown(accepted):
    accepted.write("train.py", PROGRAM + "\n    import signal\n    signal.pause()\n")
    (row,) = accepted.rows("--timeout", "0.5s", code=2)
    assert row["outcome"] == "failed"


def test_functions_are_entries(project):
    project.write(
        "pkg/model.py",
        """
        import jax
        import jax.numpy as jnp

        def step(params, x):
            return jax.tree.map(lambda w: w * jnp.mean(x), params)

        def arguments():
            return {"w": jnp.zeros((256, 1024))}, jnp.zeros((16,), jnp.bfloat16)
        """,
    )
    shapes = '[{ w = "float32[256,1024]" }, "bfloat16[16]"]'
    entry = (
        '[[check.entry]]\nname = "{}"\nfunction = "pkg.model:{}"\ngpus = ["t4"]\narguments = {}\n'
    )
    made = '"pkg.model:arguments"'
    project.write(
        "vramfit.toml", entry.format("a", "step", shapes) + entry.format("b", "step", made)
    )
    project.check("--update")
    first, second = project.rows()
    assert first["measured"]["peak_bytes"] == second["measured"]["peak_bytes"] >= 2 << 20
    project.write("vramfit.toml", entry.format("a", "stop", shapes))
    (row,) = project.rows(code=2)
    assert "`pkg.model` has no `stop`" in row["reason"]
    project.write("vramfit.toml", entry.format("a", "step", '["float[8]"]').replace("8]", "8"))
    (row,) = project.rows(code=2)
    assert "does not describe an array" in row["reason"]


def test_several_gpus_of_one_machine(project):
    project.write("vramfit.toml", project.entry(gpus=["l4", "t4", "l4x2"]))
    project.check("--update")
    keys = [line.split()[1] for line in project.lock().splitlines() if line.startswith("train")]
    assert keys == ["l4", "l4x2", "t4"]
    assert len(project.rows()) == 3
    # What is not checked any more has no line.
    project.write("vramfit.toml", project.entry())
    assert "removed: train on t4" in project.check("--update").stdout


def two_branches(project, first, second):
    """Change the program of one entry in each of two branches, accept both, and merge them."""
    for number, name in enumerate("abc", 1):
        project.write(f"{name}.py", PROGRAM.replace("256", str(64 * number)))
    entries = (project.entry(name, [sys.executable, f"{name}.py"]) for name in "abc")
    project.write("vramfit.toml", "".join(entries))
    project.git("init", "-q", "-b", "main")
    project.check("--update")
    project.commit("first")
    for branch, (name, rows) in zip(("one", "two"), (first, second), strict=True):
        project.git("checkout", "-q", "-b", branch, "main")
        project.write(f"{name}.py", PROGRAM.replace("256", str(rows)))
        project.check("--update")
        project.commit(branch)
    return project


def test_branches_merge_where_they_change_other_lines(project):
    two_branches(project, ("a", 512), ("b", 768))
    project.git("merge", "-q", "--no-edit", "one")
    assert project.check("--base", "main").stdout.count("in this branch, accepted") == 2


def test_branches_conflict_where_they_change_the_same_bytes(project):
    two_branches(project, ("a", 512), ("a", 768))
    project.git("merge", "-q", "one", code=1)
    done = project.check(code=2)
    assert "is a conflict marker of a merge of two branches" in done.stderr
    project.git("checkout", "-q", "--ours", "a.py")
    done = project.check("--update")
    assert "replaced: `vramfit.lock:" in done.stderr
    assert "accepted: a on l4: peak " in done.stdout
    assert "unchanged: b on l4" in done.stdout
    assert project.check("--base", "main").returncode == 0


def test_accepted_values_of_earlier_commits_are_shown(accepted):
    for rows in (320, 384):
        accepted.write("train.py", PROGRAM.replace("256", str(rows)))
        accepted.check("--update")
        accepted.commit(str(rows))
    accepted.write("train.py", GROWN)
    (row,) = accepted.rows(code=1)
    peaks = row["accepted_peaks"]
    assert len(peaks) == 3
    assert peaks == sorted(peaks)
    assert any("peaks accepted so far" in line for line in row["details"])


def test_a_shallow_clone_says_what_is_missing(accepted, tmp_path):
    accepted.git("commit", "-q", "--allow-empty", "-m", "second")
    accepted.git("checkout", "-qb", "branch")
    accepted.git("commit", "-q", "--allow-empty", "-m", "third")
    clone = tmp_path / "clone"
    accepted.git("clone", "-q", "--depth", "1", f"file://{accepted.folder}", str(clone))
    shallow = Project(clone, tmp_path / "cache")
    done = shallow.check("--base", "origin/main", code=2)
    assert "there is no merge base with `origin/main`" in done.stderr
    assert "fetch-depth: 0" in done.stderr


def test_places_where_people_look(accepted, tmp_path):
    from xml.etree import ElementTree

    accepted.write("train.py", GROWN)
    summary = tmp_path / "summary.md"
    files = {
        option: tmp_path / option
        for option in ("junit", "sarif", "code-quality", "markdown", "json")
    }
    options = [word for option, path in files.items() for word in (f"--{option}", str(path))]
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = accepted.check(*options, code=1, env=github)
    annotation = next(line for line in done.stderr.splitlines() if line.startswith("::error "))
    assert annotation.startswith(f"::error file=train.py,line={GROWN_LINE},title=vramfit")
    assert summary.read_text() == files["markdown"].read_text()
    assert "| train | l4 | " in summary.read_text()
    suite = ElementTree.parse(files["junit"]).getroot()
    assert suite.get("failures") == "1"
    (failure,) = suite.iter("failure")
    assert "more than accepted" in failure.get("message")
    sarif = json.loads(files["sarif"].read_text())
    (result,) = sarif["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "train.py"
    assert location["region"]["startLine"] == GROWN_LINE
    (issue,) = json.loads(files["code-quality"].read_text())
    assert issue["location"] == {"path": "train.py", "lines": {"begin": GROWN_LINE}}
    assert json.loads(files["json"].read_text())["passes"] is False
    # They are not overwritten by accident.
    assert "already exists" in accepted.check("--junit", str(files["junit"]), code=2).stderr


def test_a_first_configuration_works_as_it_is(project):
    (project.folder / "vramfit.toml").unlink()
    assert "run `vramfit check --init`" in project.check(code=2).stderr
    project.check("--init")
    path = {"PATH": f"{COMMAND_PATH}:{os.environ['PATH']}"}
    project.check("--update", env=path)
    assert project.check(env=path).stdout == UNCHANGED
