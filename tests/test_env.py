"""What `vramfit env` writes is read back by a real parser of each format, value for value.

Rows S8 (Dockerfile), S9 (Compose) and S10 (development container).
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import dockerfile_parse
import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

PLACES = ["shell", "dockerfile", "compose", "devcontainer", "slurm", "kubernetes", "systemd"]
ONE_LINE = ["dockerfile", "devcontainer"]
# All that means something to some format, and what none of them expects.
PIECES = [
    *"\"'\\$%#{}()[]:;,&|<>*?!`~=@ \t-aZ09é漢\u2028\u00a0\ufeff\u200b🙂",
    "$HOME",
    "${X}",
    "$(Y)",
]
PIECES += ["%n", "%%", "$$", "\\n", "\\", "\x01", "\x7f", "\x85", " # ", ": ", "--", "''", '""']
BREAKS = ["\n", "\r\n", "\n\n"]


def write(*arguments):
    """Run `vramfit env` and return what it printed."""
    command = [sys.executable, "-m", "vramfit", "env", *arguments]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    # Not as text: line feeds must come through as they are.
    return done.stdout.decode()


def hostile(place, count=200):
    """Return variables with values that are hard to quote."""
    chance = random.Random(place)
    pieces = PIECES if place in ONE_LINE else PIECES + BREAKS
    values = ["", " ", " x ", "\\", '"', "'", "$", "a=b=c", *pieces]
    values += ["".join(chance.choices(pieces, k=chance.randint(1, 12))) for _ in range(count)]
    return {f"V{number}": value for number, value in enumerate(values)}


def with_hostile(place):
    """Return the variables, and the text that sets them."""
    variables = hostile(place)
    # Each in a call of its own would take minutes; one call takes them all.
    sets = [f"--set={name}={value}" for name, value in variables.items()]
    return variables, write(place, *sets)


def only(variables, found):
    return {name: value for name, value in found.items() if name in variables}


def run_shell(shell, script, cwd):
    """Run a script with an empty environment; return what a program started by it would see."""
    done = subprocess.run(
        [shutil.which(shell), "-c", f"{script}\nexec {shutil.which('env')} -0"],
        env={"PATH": os.environ["PATH"]},
        cwd=cwd,
        capture_output=True,
        check=True,
    )
    items = done.stdout.decode().rstrip("\0").split("\0")
    return dict(item.split("=", 1) for item in items)


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_shell_lines_set_what_they_say(shell, tmp_path):
    variables, text = with_hostile("shell")
    (tmp_path / "jax-env.sh").write_text(text)
    seen = run_shell(shell, ". ./jax-env.sh", tmp_path)
    assert only(variables, seen) == variables
    subprocess.run([shutil.which("bash"), "-n", "jax-env.sh"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(("place", "dialect"), [("shell", "sh"), ("slurm", "bash")])
def test_shellcheck_has_nothing_to_say(place, dialect):
    text = write(place, "--gpu=t4", "--limit=8GiB", "--set=A=it's $5", "--", "python", "a b.py")
    checker = pathlib.Path(sys.executable).with_name("shellcheck")
    done = subprocess.run(
        [checker, f"--shell={dialect}", "-"], input=text, capture_output=True, text=True
    )
    # SC2016: a dollar sign in single quotes is meant to stay one.
    told = [line for line in done.stdout.splitlines() if re.search(r"SC\d+", line)]
    assert [line for line in told if "SC2016" not in line and "wiki" not in line] == []


def test_a_job_of_slurm_hands_its_steps_the_settings_and_the_command(tmp_path):
    variables, text = with_hostile("slurm")
    text = text.replace("python train.py", "python 'my train.py'")
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in options)
    # SLURM reads its options up to the first line that is a command.
    first_command = lines.index("set -euo pipefail")
    assert all(lines.index(line) < first_command for line in options)
    # A stand-in for srun that says what it was handed.
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/sh\nprintf "%s|" "$@" >> calls\nenv -0 > handed\n')
    stand_in.chmod(0o755)
    subprocess.run(
        ["bash", "-c", text],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        check=True,
    )
    handed = (tmp_path / "handed").read_bytes().decode().rstrip("\0").split("\0")
    handed = dict(item.split("=", 1) for item in handed)
    assert only(variables, handed) == variables
    assert handed["SLURM_EXPORT_ENV"] == "ALL"
    assert (tmp_path / "calls").read_text().endswith("--export=ALL|python|my train.py|")


def dockerfile(text, tmp_path):
    (tmp_path / "Dockerfile").write_text(text)
    return dockerfile_parse.DockerfileParser(str(tmp_path))


def test_a_dockerfile_sets_what_it_says(tmp_path):
    variables, text = with_hostile("dockerfile")
    parser = dockerfile(text, tmp_path)
    found = {}
    for step in parser.structure:
        if step["instruction"] == "ENV" and step["value"].startswith("V"):
            name, value = step["value"].split("=", 1)
            found[name] = unquote_dockerfile(value)
    assert found == variables


def unquote_dockerfile(text):
    """Take the quotes off as Docker does: a backslash protects a quote, a dollar and itself."""
    assert text[0] == text[-1] == '"'
    body = text[1:-1]
    assert re.fullmatch(r'(?:[^"\\$]|\\["\\$])*', body), body
    return re.sub(r'\\(["\\$])', r"\1", body)


def test_a_dockerfile_keeps_building_and_running_apart(tmp_path):
    text = write(
        "dockerfile",
        "--fraction=0.9",
        "--image=ubuntu:24.04",
        "--jax=0.6.2",
        "--",
        "python",
        "-m",
        "x",
    )
    parser = dockerfile(text, tmp_path)
    assert parser.baseimage == "ubuntu:24.04"
    assert json.loads(parser.cmd) == ["python", "-m", "x"]
    steps = [step["instruction"] for step in parser.structure if step["instruction"] != "COMMENT"]
    assert max(i for i, s in enumerate(steps) if s == "RUN") < steps.index("ENV")
    assert parser.envs["XLA_CLIENT_MEM_FRACTION"] == "0.9"
    assert parser.envs["NVIDIA_VISIBLE_DEVICES"] == "all"
    install = next(step["value"] for step in parser.structure if step["instruction"] == "RUN")
    # No plugin for CUDA 13 was released with that JAX.
    assert '"jax[cuda12]==${JAX_VERSION}"' in install
    health = next(s["value"] for s in parser.structure if s["instruction"] == "HEALTHCHECK")
    assert "vramfit doctor --require gpu" in health


def test_a_service_of_compose_sets_what_it_says():
    variables, text = with_hostile("compose")
    found = yaml.safe_load(text)["services"]["train"]["environment"]
    # What Compose does after YAML: two dollars are one, and a single one would begin a name.
    assert all(re.fullmatch(r"(?:[^$]|\$\$)*", value, re.S) for value in found.values())
    found = {name: value.replace("$$", "$") for name, value in found.items()}
    assert only(variables, found) == variables


def test_compose_accepts_the_service_and_gives_it_gpus():
    text = write("compose", "--gpu=a100-80gx4", "--fraction=0.9")
    compose = json.loads(PyCompose.from_yaml(text).to_json())
    service = compose["services"]["train"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 4, ["gpu"])
    assert "vramfit doctor --require gpu" in json.dumps(service["healthcheck"])
    with pytest.raises(Exception, match="count"):
        PyCompose.from_yaml(text.replace("count: 4", "count: [4]"))


def devcontainer(tmp_path, *arguments):
    write("devcontainer", "--write", str(tmp_path), *arguments)
    folder = tmp_path / ".devcontainer"
    with (folder / "devcontainer.env").open(newline="\n") as file:
        lines = file.read().split("\n")
    # As Docker reads a file of variables: no quotes, no replacement, comments are whole lines.
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs), json.loads((folder / "devcontainer.json").read_text())


def test_a_development_container_uses_the_file_of_variables(tmp_path):
    variables = hostile("devcontainer")
    sets = [f"--set={name}={value}" for name, value in variables.items()]
    found, container = devcontainer(tmp_path, *sets)
    assert found == variables
    assert "--env-file=.devcontainer/devcontainer.env" in container["runArgs"]
    assert "--gpus=all" in container["runArgs"]
    assert container["hostRequirements"]["gpu"] is True
    assert container["postStartCommand"].endswith("vramfit doctor --require gpu")


def expand(text):
    """Replace as Kubernetes does: `$$` is a dollar, `$(NAME)` a variable."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$\(", text), text
    return text.replace("$$", "$")


def test_a_job_of_kubernetes_is_valid_and_sets_what_it_says():
    variables, text = with_hostile("kubernetes")
    job = yaml.safe_load(text)
    kubernetes_validate.validate(job, "1.34", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found = {item["name"]: expand(item["value"]) for item in container["env"]}
    assert found == variables
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "vramfit doctor --require gpu" in container["startupProbe"]["exec"]["command"][-1]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            yaml.safe_load(text.replace("backoffLimit: 0", "backofLimit: 0")), "1.34", strict=True
        )


ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def unquote_unit(text):
    """Take the quotes off as `systemd.syntax(7)` and `systemd.unit(5)` say."""
    assert text[0] == text[-1] == '"'

    def one(match):
        escape = match[0]
        if escape == "%%":
            return "%"
        return chr(int(escape[2:], 16)) if escape[1] == "x" else ESCAPES[escape[1]]

    body = text[1:-1]
    pattern = r"\\x[0-9a-f]{2}|\\[nrt\"\\]|%%"
    assert not re.search(r'["\\%]', re.sub(pattern, "", body)), body
    return re.sub(pattern, one, body)


def test_a_service_of_systemd_sets_what_it_says():
    variables, text = with_hostile("systemd")
    lines = [line for line in text.split("\n") if line.startswith("Environment=")]
    found = dict(unquote_unit(line.removeprefix("Environment=")).split("=", 1) for line in lines)
    assert found == variables


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_has_nothing_to_say_about_the_service(tmp_path):
    _, text = with_hostile("systemd")
    unit = tmp_path / "jax-program.service"

    def verify(text):
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
        )
        return [line for line in done.stderr.splitlines() if unit.name in line]

    assert verify(text) == []
    assert verify(text.replace('"V0=', '"V 0='))


@pytest.mark.parametrize("place", PLACES)
def test_what_is_written_is_what_run_would_set(place):
    options = ["--gpu=rtx-4090", "--processes=2", "--require-gpu", "--no-preallocate"]
    text = write(place, *options)
    command = [sys.executable, "-m", "vramfit", "run", "--print", "--quiet", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, value = line.split("=", 1)
        if not name.startswith("VRAMFIT_"):
            assert name in text, line
            assert value in text, line


def refused(*arguments):
    command = [sys.executable, "-m", "vramfit", "env", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("place", ONE_LINE)
def test_a_line_break_is_refused_where_it_cannot_be_written(place):
    assert "a line break" in refused(place, "--set=A=1\n2")


def test_an_amount_needs_a_gpu():
    assert "--gpu" in refused("shell", "--limit=8GiB")


def test_a_wrong_name_is_reported():
    command = [sys.executable, "-m", "vramfit", "env", "shell", "--set=XLA_FLAG=--xla_dump_to=x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "misspelled-name" in done.stderr
    assert "XLA_FLAGS" in done.stderr


def test_files_are_not_overwritten_unless_forced(tmp_path):
    write("compose", f"--write={tmp_path}")
    assert "already exists" in refused("compose", f"--write={tmp_path}")
    write("compose", f"--write={tmp_path}", "--force", "--fraction=0.5")
    assert "0.5" in (tmp_path / "compose.yaml").read_text()


def test_the_directory_to_write_to_is_made(tmp_path):
    write("devcontainer", "--write", str(tmp_path / "new" / "place"))
    assert (tmp_path / "new/place/.devcontainer/devcontainer.json").exists()
    write("shell", "--fraction=0.9", "--write", str(tmp_path / "other"))
    assert "0.9" in (tmp_path / "other/jax-env.sh").read_text()
