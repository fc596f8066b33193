"""Write `docs/reference/command-line.md` from what `vramfit COMMAND --help` prints.

.venv/bin/python scripts/make_cli_reference.py
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/command-line.md"
INTRODUCTION = """\
# Command line

Every command with its arguments and options, as `vramfit COMMAND --help` prints them. What they \
have in common is in
[all commands](../index.md#all-commands); the page of a command explains what needs more than a \
line.
"""


def show_help(*words):
    """Return the help of a command in lines."""
    command = [Path(sys.executable).with_name("vramfit"), *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def read_section(lines, title):
    """Return the entries below a title: what each is called, and its text."""
    if title not in lines:
        return []
    entries = []
    for line in lines[lines.index(title) + 1 :]:
        if line and not line.startswith(" "):
            break
        text = line.strip()
        if line.startswith(" " * 10) or not text:
            if entries and text:
                entries[-1][1].append(text)
            continue
        name, _, text = text.partition("  ")
        entries.append((name, [text.strip()] if text.strip() else []))
    return entries


def describe(texts):
    """Return the text of an entry as one line of Markdown."""
    text = " ".join(texts)
    text = re.sub(r"\[default: ([^\]]*)\]", r"(default: \1)", text)
    text = re.sub(r"\[possible values: ([^\]]*)\]", r"(\1)", text)
    text, _, values = text.partition(" Possible values: ")
    if values:
        values = re.sub(r"(?:^| )- ([\w-]+): +", r"; `\1`: ", values)
        text += f". {values.removeprefix('; ')}"
    return text


def write_rows(head, entries):
    """Return the lines of a table."""
    out = [f"| {head} | meaning |", "| --- | --- |"]
    for option, texts in entries:
        words = ", ".join(f"`{word}`" for word in option.split(", "))
        cells = [cell.replace("|", r"\|") for cell in (words, describe(texts))]
        out.append(f"| {' | '.join(cells)} |")
    return [*out, ""]


def describe_command(name, summary):
    """Return the part of the page about one command, and those about its actions."""
    lines = show_help(*name.split())
    actions = read_section(lines, "Commands:")
    out = [f"## `vramfit {name}`", ""]
    explained = f"[Explained here](../commands/{name.split()[0]}.md)."
    out += [f"{summary}. {explained}", ""]
    entries = read_section(lines, "Arguments:") + read_section(lines, "Options:")
    entries = [(option, text) for option, text in entries if option != "-h, --help"]
    if entries:
        out += write_rows("option", entries)
    for action, text in actions:
        if action != "help":
            out += describe_command(f"{name} {action}", describe(text))
    return out


def write_page():
    """Return the whole page."""
    lines = show_help()
    out = [INTRODUCTION, *write_rows("option of every command", read_section(lines, "Options:"))]
    for title in [line for line in lines if re.fullmatch(r"[A-Z].*:", line)]:
        if title not in ("Options:", "Exit codes:"):
            for name, text in read_section(lines, title):
                out += describe_command(name, describe(text))
    return "\n".join(out).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_page())
