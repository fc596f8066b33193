"""A release is prepared only from what is committed, and leaves nothing behind where it fails."""

import datetime
import os

import pytest
from commands import ROOT, run_command, run_python

CARGO = '[workspace]\n\n[workspace.package]\nversion = "0.1.0"\nedition = "2024"\n'
CHANGELOG = "# Changes\n\n## Unreleased\n\n- More.\n\n## 0.1.0 - 2026-01-01\n\nThe first.\n"
MAKEFILE = """check:
	sed -i s/0.1.0/0.2.0/ Cargo.lock
test-wheel sdist:
	echo made >> ignored
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a directory with what a release changes, and a build that is done at once."""
    for name, value in {"AUTHOR": "a", "COMMITTER": "a"}.items():
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    files = {"Cargo.toml": CARGO, "Cargo.lock": "0.1.0", "CHANGELOG.md": CHANGELOG}
    for name, text in {**files, "Makefile": MAKEFILE, ".gitignore": "ignored"}.items():
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def git(project, *words):
    return run_command("git", *words, cwd=project, code=0).stdout


def release(project, *version):
    return run_python(ROOT / "scripts" / "release.py", *version, cwd=project)


@pytest.mark.fast
def test_a_release_is_committed_and_tagged_and_not_published(project):
    done = release(project, "0.2.0")
    assert done.returncode == 0, done.stderr
    assert "git push origin HEAD v0.2.0" in done.stdout
    assert 'version = "0.2.0"' in (project / "Cargo.toml").read_text()
    dated = f"## Unreleased\n\n## 0.2.0 - {datetime.date.today()}\n\n- More.\n\n## 0.1.0"
    assert dated in (project / "CHANGELOG.md").read_text()
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "show", "--format=%s", "--name-only", "v0.2.0^{commit}").split("\n") == [
        *("release: 0.2.0", "", "CHANGELOG.md", "Cargo.lock", "Cargo.toml", "")
    ]
    assert "no changes under `Unreleased`" in release(project, "0.3.0").stderr
    assert "there is a tag v0.2.0" in release(project, "0.2.0").stderr


@pytest.mark.parametrize(
    ("version", "change", "reason"),
    [
        ([], {}, "name the version"),
        (["1.0"], {}, "`1.0` is no version"),
        (["0.0.9"], {}, "0.0.9 is older than 0.1.0"),
        (["0.2.0"], {"new.py": ""}, "not everything is committed: new.py"),
        (["0.2.0"], {"Makefile": "check:\n\tfalse\n"}, "not everything is committed: Makefile"),
    ],
)
def test_what_cannot_be_released_is_refused(project, version, change, reason):
    for name, text in change.items():
        (project / name).write_text(text)
    done = release(project, *version)
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert (project / "Cargo.toml").read_text() == CARGO


@pytest.mark.parametrize("recipe", ["false", "touch left"])
def test_a_release_that_fails_changes_nothing(project, recipe):
    makefile = f"check:\n\t{recipe}\ntest-wheel sdist:\n"
    (project / "Makefile").write_text(makefile)
    git(project, "commit", "--all", "--quiet", "--message", "a build that fails")
    assert release(project, "0.2.0").returncode == 1
    assert git(project, "diff", "HEAD") == ""
    assert git(project, "tag") == ""
