"""The workflows that `vramfit check --workflow` prints, read by the schemas of the services."""

import importlib.util
import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from commands import run_vramfit


def workflow(name):
    """Return the text of a workflow."""
    done = run_vramfit("check", "--workflow", name, code=0)
    return done.stdout


def errors(schema, value):
    """Return what a service's schema says of a file."""
    # Only its files are needed, and not what the package imports.
    package = importlib.util.find_spec("check_jsonschema").submodule_search_locations[0]
    vendor = Path(package) / "builtin_schemas" / "vendor"
    schema = json.loads((vendor / f"{schema}.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [error.message for error in validator.iter_errors(value)]


@pytest.mark.parametrize(
    ("name", "schema", "job"),
    [("github", "github-workflows", "check"), ("gitlab", "gitlab-ci", "gpu-memory")],
)
def test_a_workflow_is_valid(name, schema, job):
    value = yaml.safe_load(workflow(name))
    # YAML 1.1 reads the key `on` as true.
    value = {("on" if key is True else key): item for key, item in value.items()}
    assert errors(schema, value) == []
    jobs = value.get("jobs", value)
    jobs[job]["unknown-key"] = 3
    assert errors(schema, value)


def test_the_hook_is_valid(tmp_path):
    from pre_commit import clientlib

    path = tmp_path / ".pre-commit-config.yaml"
    path.write_text(workflow("pre-commit"))
    [repository] = clientlib.load_config(path)["repos"]
    [hook] = repository["hooks"]
    assert hook["entry"] == "vramfit check"
    path.write_text(workflow("pre-commit").replace("language:", "languages:"))
    with pytest.raises(clientlib.InvalidConfigError):
        clientlib.load_config(path)


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_the_whole_history_is_fetched_and_the_cache_kept(name):
    text = workflow(name)
    assert "fetch-depth: 0" in text or 'GIT_DEPTH: "0"' in text
    assert ".cache/vramfit" in text


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_vramfit_is_installed_from_a_wheel_that_is_named(name):
    """No index has it: a workflow without the variable fails, and says which to set."""
    text = workflow(name)
    [line] = [line for line in text.splitlines() if "pip install" in line]
    command = line[line.index("pip install") :].replace("pip install", "printf '%s\\n'")
    unset = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={})
    assert unset.returncode != 0
    assert "VRAMFIT: set it to the URL of the wheel" in unset.stderr
    environment = {"VRAMFIT": "https://example.org/vramfit.whl"}
    named = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment)
    assert named.stdout.splitlines()[0] == "vramfit[cuda13] @ https://example.org/vramfit.whl"
