"""Other libraries of the process that allocate GPU memory: named, since it is not counted."""

import pytest

PROGRAM = "import {name}\nimport jax.numpy as jnp\njnp.ones((1024, 1024)) + 1\n"
CUDA = "__version__ = '2.9.1'\nclass version: cuda, hip = '13.0', None\n"
CPU = "__version__ = '2.9.1+cpu'\nclass version: cuda = hip = None\n"
TENSORFLOW = """
__version__ = "2.20.0"
class sysconfig:
    def get_build_info():
        return {"is_cuda_build": IS_CUDA}
"""
# What the package holds, and what is said of it.
PACKAGES = {
    "torch": ("torch", CUDA, "torch 2.9.1"),
    "torch for AMD": ("torch", CUDA.replace("'13.0', None", "None, '7'"), "torch 2.9.1"),
    "torch for the CPU": ("torch", CPU, None),
    "tensorflow": ("tensorflow", TENSORFLOW.replace("IS_CUDA", "True"), "tensorflow 2.20.0"),
    "tensorflow for the CPU": ("tensorflow", TENSORFLOW.replace("IS_CUDA", "False"), None),
    "warp": ("warp", "__version__ = '1.9.0'", "warp 1.9.0"),
    "cupy of no version": ("cupy", "", "cupy (unknown version)"),
    "another library": ("polars", "__version__ = '1.0'", None),
}


def other_libraries(run):
    conditions = run.summary["verdict"]["conditions"]
    return [one for one in conditions if one["kind"] == "other_libraries"]


@pytest.fixture
def run(dryrun, tmp_path, write_script):
    def run_with(name, text, folder, options=()):
        package = tmp_path / folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        script = write_script(PROGRAM.format(name=name), "program.py")
        return dryrun(script, options=options, env={"PYTHONPATH": str(package.parent)})

    return run_with


@pytest.mark.parametrize("case", PACKAGES)
def test_what_may_use_the_gpu_beside_jax_is_named(run, case):
    name, text, described = PACKAGES[case]
    done = run(name, text, "site-packages")
    conditions = other_libraries(done)
    assert done.summary["fits"] is True
    if described is None:
        assert conditions == []
        return
    (condition,) = conditions
    assert " ".join([name, condition["libraries"][name]]) == described
    sentence = f"the program imports {described}: its GPU memory is not counted"
    assert condition["text"].startswith(sentence)
    assert sentence in " ".join(done.err.split())


def test_what_is_counted_for_others_is_enough(run):
    done = run("torch", CUDA, "site-packages", options=("--occupied", "1GiB"))
    assert other_libraries(done) == []


def test_a_module_of_the_users_own_is_no_library(run):
    assert other_libraries(run("warp", "", "own")) == []
