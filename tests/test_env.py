"""What `vramfit env` writes is read back by a real parser of each format, value for value.

Rows S8 (Dockerfile), S9 (Compose) and S10 (development container).
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import dockerfile_parse
import kubernetes_validate
import pytest
import yaml
from commands import SCRIPTS, run_command, run_vramfit
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
    checker = SCRIPTS / "shellcheck"
    done = run_command(checker, f"--shell={dialect}", "-", input=text)
    # SC2016: a dollar sign in single quotes is meant to stay one.
    findings = [line for line in done.stdout.splitlines() if re.search(r"SC\d+", line)]
    assert [line for line in findings if "SC2016" not in line and "wiki" not in line] == []


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


def slurm_options(text):
    """Return the options of a SLURM job by name."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.M))


def run_in_jax(variables, program):
    """Run a program that imports JAX with these variables; return what it prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def detect_in_jax(variables):
    """Return what `jax.distributed.initialize()` finds out by itself, with these variables."""
    program = """
import json
from jax._src.clusters.cluster import ClusterEnv
print(json.dumps(ClusterEnv.auto_detect_unset_distributed_params(*6 * [None])))
"""
    return run_in_jax(variables, program)


@pytest.mark.parametrize(("hosts", "gpus"), [(4, 8), (2, 1)])
def test_every_gpu_of_a_slurm_job_gets_a_process_of_jax(hosts, gpus):
    options = slurm_options(write("slurm", f"--gpu=h100-80gx{gpus}", f"--hosts={hosts}"))
    nodes, tasks = int(options["nodes"]), int(options["ntasks-per-node"])
    used = []
    # The first and the last task; those between them differ in their numbers only.
    for node, local in [(0, 0), (nodes - 1, tasks - 1)]:
        # What SLURM sets for a task of a step of this job.
        variables = {
            "SLURM_JOB_ID": "4711",
            "SLURM_STEP_NODELIST": f"gpu[07-{nodes + 6:02}]",
            "SLURM_NTASKS": str(nodes * tasks),
            "SLURM_PROCID": str(node * tasks + local),
            "SLURM_LOCALID": str(local),
        }
        address, processes, process, devices = detect_in_jax(variables)
        assert address.startswith("gpu07:")
        assert processes == hosts * gpus
        used.append((process, devices))
    assert used == [(0, [0]), (hosts * gpus - 1, [gpus - 1])]
    # JAX numbers the GPUs that the task sees, which are those of the node.
    assert int(options["gpus-per-node"]) == gpus
    assert not {"gpus-per-task", "gpu-bind"} & options.keys()


def test_a_slurm_job_of_several_hosts_checks_each_and_ends_with_the_first_failure(tmp_path):
    text = write("slurm", "--gpu=h100-80gx8", "--hosts=4")
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/sh\necho "$@" >> calls\n')
    stand_in.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", text], env={"PATH": path}, cwd=tmp_path, check=True)
    check, step = (tmp_path / "calls").read_text().splitlines()
    assert check.startswith("--ntasks=4 --ntasks-per-node=1 ")
    assert check.endswith("vramfit doctor --require gpu")
    assert step == "--export=ALL --kill-on-bad-exit=1 python train.py"


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
    assert '"${VRAMFIT:?' in install, "no package index has it"
    assert {"ARG": "VRAMFIT"} in [
        {step["instruction"]: step["value"]} for step in parser.structure
    ], "without a default"
    health = next(s["value"] for s in parser.structure if s["instruction"] == "HEALTHCHECK")
    assert health.endswith("CMD vramfit doctor --require gpu --no-jax")


@pytest.mark.parametrize("form", ["dockerfile", "compose", "devcontainer", "slurm", "kubernetes"])
def test_no_format_installs_vramfit_as_if_an_index_had_it(form):
    for line in write(form).splitlines():
        # The package alone, as a word that pip is given.
        assert not re.search(r"pip install[^#]*\svramfit(\[\w*\])?([\s\"']|$)", line), line
        assert 'VRAMFIT=vramfit"' not in line
        assert not re.search(r"VRAMFIT=vramfit$", line), line


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
    assert "vramfit doctor --require gpu --no-jax" in json.dumps(service["healthcheck"])
    assert service["build"]["args"]["VRAMFIT"].startswith("${VRAMFIT:?")
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
    assert container["containerEnv"] == {"VRAMFIT": "${localEnv:VRAMFIT}"}
    assert '"${VRAMFIT:?' in container["postCreateCommand"]


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


# Answers JAX as Kubernetes does for a pod of the job, where the role of its account permits it.
IN_A_POD = """
import json, os, socket, sys, types
from jax._src.clusters.k8s_cluster import K8sCluster

objects = {one["kind"]: one for one in json.load(open(os.environ["MANIFEST"]))}
job, template = objects["Job"], objects["Job"]["spec"]["template"]
number = os.environ["JOB_COMPLETION_INDEX"]


def permit(verb, group, resource):
    account = {"kind": "ServiceAccount", "name": template["spec"]["serviceAccountName"]}
    assert account in objects["RoleBinding"]["subjects"]
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    permitted = {
        (verb, group, resource)
        for rule in objects["Role"]["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert (verb, group, resource) in permitted


def space(**values):
    return types.SimpleNamespace(**values)


class CoreV1Api:
    def list_namespaced_pod(self, namespace, field_selector):
        permit("list", "", "pods")
        name = job["metadata"]["name"]
        metadata = space(
            name=f"{name}-{number}-abcde",
            labels={"job-name": name},
            owner_references=[space(kind="Job", controller=True)],
        )
        spec = space(subdomain=template["spec"].get("subdomain"))
        return space(items=[space(metadata=metadata, spec=spec)])

    def list_namespaced_service(self, namespace):
        permit("list", "", "services")
        service = objects["Service"]
        spec = space(
            cluster_ip=service["spec"]["clusterIP"], selector=service["spec"]["selector"]
        )
        return space(items=[space(metadata=space(**service["metadata"]), spec=spec)])


class BatchV1Api:
    def read_namespaced_job(self, name, namespace):
        permit("get", "batch", "jobs")
        assert name == job["metadata"]["name"]
        return space(
            metadata=space(name=name, labels={}), spec=space(parallelism=job["spec"]["parallelism"])
        )


client = space(
    CoreV1Api=CoreV1Api,
    BatchV1Api=BatchV1Api,
    exceptions=space(ApiException=type("ApiException", (Exception,), {})),
)
kubernetes = types.ModuleType("kubernetes")
kubernetes.client, kubernetes.config = client, space(load_incluster_config=lambda: None)
sys.modules["kubernetes"] = kubernetes
# Without a cluster there is neither the file with the namespace nor a name server.
K8sCluster._namespace = classmethod(lambda cls: "default")
socket.gethostbyname = lambda name: "10.0.0.7"

print(json.dumps(K8sCluster.auto_detect_unset_distributed_params(*6 * [None])))
"""


def test_jax_finds_the_pods_of_a_kubernetes_job(tmp_path):
    text = write("kubernetes", "--gpu=h100-80gx8", "--hosts=4")
    objects = list(yaml.safe_load_all(text))
    for one in objects:
        kubernetes_validate.validate(one, "1.34", strict=True)
    kinds = ["ServiceAccount", "Role", "RoleBinding", "Service", "Job"]
    assert [one["kind"] for one in objects] == kinds
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(objects))
    for number in (0, 3):
        variables = {
            "MANIFEST": str(manifest),
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "HOSTNAME": f"jax-train-{number}",
            "JOB_COMPLETION_INDEX": str(number),
        }
        address, processes, process, devices = run_in_jax(variables, IN_A_POD)
        assert address == "jax-train-0.jax-train:55527"
        # One process in each pod, with all GPUs of the pod.
        assert (processes, process, devices) == (4, number, None)
    *_, service, job = objects
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    # The name of the service is that of the pods' domain, and it selects the pods of the job.
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


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
        done = run_command("systemd-analyze", "verify", "--man=no", unit)
        return [line for line in done.stderr.splitlines() if unit.name in line]

    assert verify(text) == []
    assert verify(text.replace('"V0=', '"V 0='))


@pytest.mark.parametrize("place", PLACES)
def test_what_is_written_is_what_run_would_set(place):
    options = ["--gpu=rtx-4090", "--processes=2", "--require-gpu", "--no-preallocate"]
    text = write(place, *options)
    printed = run_vramfit("run", "--print", "--quiet", *options, code=0).stdout
    for line in printed.splitlines():
        name, value = line.split("=", 1)
        if not name.startswith("VRAMFIT_"):
            assert name in text, line
            assert value in text, line


def refused(*arguments):
    done = run_vramfit("env", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("place", ONE_LINE)
def test_a_line_break_is_refused_where_it_cannot_be_written(place):
    assert "a line break" in refused(place, "--set=A=1\n2")


@pytest.mark.parametrize("place", sorted({*PLACES} - {"slurm", "kubernetes"}))
def test_several_hosts_are_refused_where_a_program_starts_on_one(place):
    assert "on one host" in refused(place, "--hosts=2")


def test_an_amount_needs_a_gpu():
    assert "--gpu" in refused("shell", "--limit=8GiB")


def test_a_wrong_name_is_reported():
    done = run_vramfit("env", "shell", "--set=XLA_FLAG=--xla_dump_to=x", code=0)
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
