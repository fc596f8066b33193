"""Prepares a release, and publishes nothing: `make release VERSION=1.2.3`.

The version and the date are written, everything is checked and built, and the result is committed
and tagged. What is left to do is printed. If anything fails, the files are as they were.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

# Cargo writes the versions of our packages to Cargo.lock when it builds them.
FILES = ["CHANGELOG.md", "Cargo.lock", "Cargo.toml"]
VERSION = re.compile(r'(?<=\[workspace\.package\]\nversion = ")[^"]+')
UNRELEASED = "## Unreleased\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("release: name the version: make release VERSION=1.2.3")
    version = sys.argv[1]
    if refused := reason_to_refuse(version):
        sys.exit(f"release: {refused}")
    try:
        write(version)
        if code := subprocess.run(["make", "check", "test-wheel", "sdist"]).returncode:
            sys.exit(f"release: make has failed ({code}); nothing was released")
        if others := set(changed()) - set(FILES):
            sys.exit(f"release: the build has changed {', '.join(sorted(others))}")
        git("commit", "--quiet", "--message", f"release: {version}", *FILES)
        git("tag", "--annotate", "--message", f"vramfit {version}", f"v{version}")
    except BaseException:
        git("checkout", "HEAD", "--", *FILES)
        raise
    print(f"""
committed and tagged: v{version}; in build/wheel: the wheel and the source
nothing is published yet; what is left:
  git push origin HEAD v{version}      # the workflow `release` makes a draft of the release
  .venv/bin/maturin upload build/wheel/*    # to the package index, by the owner of the name""")


def reason_to_refuse(version):
    """Return why there can be no release of this version from here, or None."""
    current = VERSION.search(Path("Cargo.toml").read_text()).group()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return f"`{version}` is no version, such as 1.2.3"
    if numbers(version) < numbers(current):
        return f"{version} is older than {current}, the version in Cargo.toml"
    if git("tag", "--list", f"v{version}"):
        return f"there is a tag v{version} already"
    if others := changed():
        return f"not everything is committed: {', '.join(others)}"
    _, _, changes = Path("CHANGELOG.md").read_text().partition(UNRELEASED)
    if not changes.split("\n## ")[0].strip():
        return "CHANGELOG.md has no changes under `Unreleased`"
    return None


def write(version):
    """Write the version to Cargo.toml, and with the date of today to the changelog."""
    cargo, changelog = Path("Cargo.toml"), Path("CHANGELOG.md")
    cargo.write_text(VERSION.sub(version, cargo.read_text(), count=1))
    today = datetime.date.today().isoformat()
    heading = f"{UNRELEASED}\n## {version} - {today}\n"
    changelog.write_text(changelog.read_text().replace(UNRELEASED, heading, 1))


def numbers(version):
    return tuple(map(int, version.split(".")))


def changed():
    """Return the files that differ from what is committed, also those that nobody has added."""
    return [line[3:] for line in git("status", "--porcelain").splitlines()]


def git(*arguments):
    done = subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.rstrip()


if __name__ == "__main__":
    main()
