"""The pages that people start with say what really happens."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess

import pytest
from commands import (
    COMMAND_PATH,
    ROOT,
    clean_environment,
    run_command,
    run_python,
    run_vramfit,
)


def blocks(page, language):
    """Return the code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def dry_runs(page):
    """Return each dry run of a page that shows output: its arguments and the lines shown."""
    found = []
    for block in blocks(page, "console"):
        command, *shown = block.splitlines()
        if command.startswith("$ vramfit dryrun ") and shown and not shown[0].startswith("$"):
            found.append((shlex.split(command)[2:], shown))
    return found


def said(arguments, cwd):
    # `python` in a page is the one that has vramfit.
    path = COMMAND_PATH + os.pathsep + os.environ["PATH"]
    done = run_vramfit(*arguments, env={"PATH": path}, cwd=cwd)
    # A command has its talk on the one, its data on the other; a page shows both.
    return done.stderr.splitlines() + done.stdout.splitlines()


def assert_shows(lines, shown):
    """Check that the shown lines come in this order; `...` stands for any lines.

    How wide the columns are is the business of the report's own tests.
    """
    lines = [" ".join(line.split()) for line in lines]
    at, free = 0, True
    for expected in (" ".join(line.split()) for line in shown):
        if expected == "...":
            free = True
            continue
        matches = [number for number in range(at, len(lines)) if lines[number] == expected]
        assert matches, f"{expected!r} is not in\n" + "\n".join(lines[at:])
        assert free or matches[0] == at, f"{expected!r} comes later than shown"
        at, free = matches[0] + 1, False


def test_readme_shows_what_the_first_answer_says():
    [(arguments, shown)] = dry_runs("README.md")
    assert_shows(said(arguments, ROOT), shown)


def test_a_program_is_computed_in_chunks_as_written(tmp_path, monkeypatch):
    page = "docs/guides/chunks.md"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    [program] = blocks(page, "python")
    (tmp_path / "train.py").write_text(program)
    *measured, started = (block.splitlines() for block in blocks(page, "console"))
    assert len(measured) >= 2
    for command, *shown in measured:
        assert_shows(said(shlex.split(command)[2:], tmp_path), shown)
    # Started for real, with numbers for a CPU.
    command, *shown = started
    assert "1024 2048" in command
    arguments = shlex.split(command.replace("1024 2048", "16 64"))[2:]
    assert_shows(said(arguments, tmp_path), [*shown, "..."])


def test_estimates_come_out_as_written(tmp_path, write_script):
    """The program is all code blocks of the guide, the output all others."""
    page = "docs/guides/estimates.md"
    program = write_script("\n".join(blocks(page, "python")), "guide.py")
    done = run_python(program, env={"JAX_PLATFORMS": "cpu"}, cwd=tmp_path)
    assert done.stdout == "".join(blocks(page, "text")), done.stderr


def test_samples_that_are_not_rows_are_read_as_written(tmp_path, monkeypatch):
    page = "docs/guides/data-samples.md"
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks(page, "python")), page, "exec"), {})
    for command in "\n".join(blocks(page, "console")).splitlines():
        run_command(*shlex.split(command.removeprefix("$ ")), code=0)


@pytest.mark.parametrize("page", ["after-training", "training-models"])
def test_training_and_what_follows_work_as_written(tmp_path, monkeypatch, page):
    """Files are written, programs executed in one process, commands run, in order."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / f"docs/guides/{page}.md").read_text()
    names, printed, wanted = {}, io.StringIO(), ""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S):
        first = block.split(maxsplit=2)[:2]
        if first[0] == "#" and first[1].endswith((".py", ".toml")):
            (tmp_path / first[1]).write_text(block)
        elif language == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(block, page, "exec"), names)
        elif language == "console":
            for command in block.splitlines():
                words = shlex.split(command.removeprefix("$ vramfit "))
                run_vramfit(*words, cwd=tmp_path, code=0)
        else:
            wanted += block
    assert printed.getvalue() == wanted


def follow(text, folder, run=None):
    """Write the files of a page, apply its differences, and run its commands, in order.

    `run` gets each command, and the function that runs one, and returns the lines it has printed.
    """
    environment = clean_environment(
        XDG_CACHE_HOME=f"{folder}-cache", GIT_CONFIG_GLOBAL=os.devnull, HOME=str(folder)
    )
    environment["PATH"] = COMMAND_PATH + os.pathsep + environment["PATH"]

    def shell(command, text=None):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout.splitlines()

    shell("git init -q -b main; git config user.name a; git config user.email a@example.org")
    shown = 0
    for language, name, block in re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', text, re.M | re.S
    ):
        if name:
            (folder / name).write_text(block)
        elif language == "diff":
            assert shell("git apply", block) == []
        elif language == "console":
            for command, *lines in (piece.splitlines() for piece in f"\n{block}".split("\n$ ")[1:]):
                printed = run(command, shell) if run else shell(command)
                assert_shows(printed, [*lines, "..."])
                shown += len(lines)
    assert shown > 10


def test_five_minutes_go_as_written(tmp_path):
    """What a page runs on a GPU is run on the CPU here, and computes something smaller."""
    script = tmp_path / "train.py"

    def run(command, shell):
        if not command.startswith("vramfit run "):
            return shell(command)
        program = script.read_text()
        script.write_text(program.replace("2048", "16").replace("8192", "64"))
        printed = shell(command.replace("32768", "16").removesuffix(" &"))
        script.write_text(program)
        assert any(line.startswith("loss ") for line in printed), printed
        return printed

    follow((ROOT / "docs/five-minutes.md").read_text(), tmp_path, run)


def test_a_pull_request_is_checked_as_written(tmp_path):
    follow((ROOT / "docs/guides/ci.md").read_text().split("\n## Tests")[0], tmp_path)


def test_a_model_is_trained_as_written(tmp_path):
    page = (ROOT / "docs/commands/train.md").read_text().split("\n## ")
    [part] = [part for part in page if part.startswith("From data to a trained model")]
    follow(part, tmp_path)


@pytest.mark.parametrize("case", range(7))
def test_causes_can_be_seen_as_written(case, tmp_path):
    for program in blocks("docs/guides/oom-causes.md", "python"):
        name = program.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(program)
    cases = dry_runs("docs/guides/oom-causes.md")
    assert len(cases) == 7
    arguments, shown = cases[case]
    assert_shows(said(arguments, tmp_path), shown)


@pytest.mark.parametrize("case", range(2))
def test_many_hosts_can_be_seen_as_written(case, tmp_path):
    page = "docs/guides/many-hosts.md"
    (program,) = blocks(page, "python")
    (tmp_path / "evaluate.py").write_text(program)
    script = ROOT / "examples" / "hosts" / "train_transformer.py"
    (tmp_path / script.name).write_text(script.read_text())
    arguments, shown = dry_runs(page)[case]
    assert_shows(said(arguments, tmp_path), shown)


@pytest.mark.parametrize("case", range(3))
def test_changes_are_measured_as_written(case, tmp_path):
    page = "docs/guides/measured-changes.md"
    (program,) = blocks(page, "python")
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    arguments, shown = dry_runs(page)[case]
    assert_shows(said(arguments, tmp_path), shown)


RECORDING_MODULE = """
import json, types

def tell(*call):
    print("called", json.dumps(call))

"""
MODULES = {
    "wandb": """
class Run:
    id = "w1"
    def define_metric(self, name, step_metric): tell("define", name, step_metric)
    def log(self, values): tell("log", sorted(values), values["step"])
    def finish(self): tell("finish")

def init(id, resume, project):
    tell("init", id, resume, project)
    return Run()
""",
    "mlflow": """
def start_run(run_id):
    tell("start", run_id)
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))

def log_metrics(values, step): tell("metrics", sorted(values), step)
def end_run(): tell("end")
""",
}


def test_callbacks_work_as_written(tmp_path):
    # Neither package is installed here: these modules record what they are called with.
    for name, lines in MODULES.items():
        (tmp_path / f"{name}.py").write_text(RECORDING_MODULE + lines)
    (tmp_path / "loggers.py").write_text((ROOT / "examples/callbacks/loggers.py").read_text())
    program = "\n".join(blocks("docs/guides/training-callbacks.md", "python"))
    (tmp_path / "page.py").write_text(program)
    done = run_python("page.py", code=0, cwd=tmp_path, env={"JAX_PLATFORMS": "cpu"})
    lines = done.stdout.splitlines()
    assert lines[0].startswith("steps to 16: loss 0.4")
    assert "callback: the loss is small enough" in lines
    assert "[100, 200, 300, 400, 500] 500" in lines
    (metrics,) = [line for line in lines if line.startswith("{'auc'") or "'classes_f1'" in line]
    assert "'auc': 0.9" in metrics
    calls = [line.removeprefix("called ") for line in lines if line.startswith("called ")]
    assert calls[:3] == [
        '["init", null, "allow", "sums"]',
        '["define", "*", "step"]',
        '["start", null]',
    ]
    names = '["train/learning_rate", "train/loss"'
    assert calls[3:5] == [
        '["log", ["step", "train/learning_rate", "train/loss"], 32]',
        f'["metrics", {names}], 32]',
    ]
    assert calls[5:7] == [
        '["log", ["step", "validation/loss"], 32]',
        '["metrics", ["validation/loss"], 32]',
    ]
    assert calls[-2:] == ['["finish"]', '["end"]']


def anchors(page):
    """Return the anchors that the headings of a page make."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.fast
@pytest.mark.parametrize(
    "page",
    sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")) + [ROOT / "examples/README.md"],
    ids=lambda p: p.name,
)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{page.name}: {link}"


def test_every_page_is_linked_from_another():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in pages
        for link in re.findall(r"\]\(([^)\s#][^)\s]*)\)", page.read_text())
    }
    for page in ROOT.glob("docs/**/*.md"):
        assert page in linked, f"no page leads to {page.relative_to(ROOT)}"


@pytest.mark.fast
def test_every_page_is_part_of_the_site():
    listed = re.findall(r" ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(p.relative_to(docs)) for p in docs.glob("**/*.md"))


def sources(*folders):
    return [path for folder in folders for path in ROOT.glob(folder) if path.is_file()]


@pytest.mark.fast
def test_every_variable_that_is_read_is_documented():
    page = (ROOT / "docs/reference/environment-variables.md").read_text()
    documented = set(re.findall(r"`(VRAMFIT_[A-Z_]+)`", page))
    read = set()
    for path in sources(
        "crates/*/src/**/*.rs", "crates/*/benches/*.rs", "python/**/*.py", "scripts/**/*.py"
    ):
        # What only a unit test sets is no part of the program.
        code = path.read_text().split("#[cfg(test)]")[0]
        read |= set(re.findall(r"[\"\'](VRAMFIT_[A-Z_]+)[\"\']", code))
    assert read <= documented, sorted(read - documented)
    # The tests of recordings read one that no program does.
    assert documented - read <= {"VRAMFIT_GOLDEN_BFC_SPATIAL"}, sorted(documented - read)


@pytest.mark.fast
@pytest.mark.parametrize(
    "page",
    [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/internals/*.md"))],
    ids=lambda p: p.name,
)
def test_files_that_are_named_exist(page):
    tracked = run_command("git", "ls-files", code=0, cwd=ROOT).stdout.splitlines()
    folders = {f"{folder}/" for path in tracked for folder in pathlib.PurePath(path).parents}
    known = [f"/{name}" for name in (*tracked, *folders)]
    for name in re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:rs|py|js))`", page.read_text()):
        if name.startswith(("build/", ".cache/", ".venv", "/", "runs/")):
            continue
        # Pages shorten paths to what is below the crate that they are about.
        assert any(path.endswith((f"/{name}", f"/{name}/")) for path in known), (
            f"{page.name}: {name}"
        )
