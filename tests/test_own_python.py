"""The environment of vramfit need not be activated: a `python` without JAX is vramfit's own."""

import os
import pathlib
import sys
import venv

import pytest
from commands import run_vramfit

SCRIPT = """
import sys
print(sys.prefix)
import jax.numpy as jnp
print(float(jnp.ones(4).sum()))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The folder of a Python without JAX, as of a system."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin"


def path_with(folder):
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def is_noted(done):
    return f"vramfit's own, `{sys.executable}`" in done.stderr


def test_a_python_without_jax_is_replaced_by_the_own_one(bare, write_script):
    words = ["dryrun", "--gpu", "t4", "--", "python", write_script(SCRIPT)]
    done = run_vramfit(*words, env=path_with(bare), code=0)
    assert done.stdout.splitlines()[0] == sys.prefix
    assert f"note: `python` is vramfit's own, `{sys.executable}`: `{bare}/python` has no JAX" in (
        done.stderr
    )


def test_one_that_is_named_by_its_path_is_not(bare, write_script):
    words = ["dryrun", "--gpu", "t4", "--", bare / "python", write_script(SCRIPT)]
    done = run_vramfit(*words, env=path_with(bare), code=2)
    assert "has no `jax`" in done.stderr
    assert not is_noted(done)


def test_one_that_has_jax_is_not(bare, write_script):
    words = ["dryrun", "--gpu", "t4", "--", "python", write_script(SCRIPT)]
    own = str(pathlib.Path(sys.executable).parent)
    done = run_vramfit(*words, env=path_with(own), code=0)
    assert not is_noted(done)


def test_the_one_that_an_option_names_comes_first(bare, write_script):
    words = ["--python", bare / "python3", "dryrun", "--gpu", "t4", "--", "python"]
    done = run_vramfit(*words, write_script(SCRIPT), env=path_with(bare), code=2)
    assert "has no `jax`" in done.stderr


def test_where_there_is_no_python_it_is_the_own_one(tmp_path, write_script):
    words = ["dryrun", "--gpu", "t4", "--", "python", write_script(SCRIPT)]
    done = run_vramfit(*words, env={"PATH": str(tmp_path)}, code=0)
    assert done.stdout.splitlines()[0] == sys.prefix
    assert "there is none on the `PATH`" in done.stderr


def test_the_program_itself_has_the_python_that_it_would_have_without_us(bare, write_script):
    script = write_script("import sys; print(sys.prefix)")
    done = run_vramfit("run", "--", "python", script, env=path_with(bare), code=0)
    assert done.stdout.strip() == str(bare.parent)
    assert not is_noted(done)


def test_plan_and_check_do_so_too(bare, write_script, tmp_path):
    step = "import jax, jax.numpy as jnp\njax.jit(jnp.sum)(jnp.ones(4)).block_until_ready()\n"
    script = write_script(step)
    options = ["--gpu", "t4", "--max-trials", "2", "--steps", "1"]
    done = run_vramfit("plan", *options, "--", "python", script, env=path_with(bare))
    assert is_noted(done)
    assert "has no `jax`" not in done.stderr
    words = f'["python", "{script}"]'
    (tmp_path / "vramfit.toml").write_text(
        f'[[check.entry]]\nname = "sum"\ncommand = {words}\ngpus = ["t4"]\n'
    )
    done = run_vramfit("check", "--update", cwd=tmp_path, env=path_with(bare))
    assert is_noted(done), done.stderr
    assert "has no `jax`" not in done.stderr


def test_a_script_that_is_not_there_is_named_with_the_nearest(tmp_path):
    (tmp_path / "train.py").write_text("")
    for command in (["tran.py"], ["python", "tran.py"], ["python", "-u", "tran.py"]):
        done = run_vramfit("dryrun", "--gpu", "t4", "--", *command, cwd=tmp_path, code=2)
        assert "error[command-not-found]: there is no file `tran.py`" in done.stderr
        assert "did you mean `train.py`?" in done.stderr
    environment = {"PATH": os.environ["PATH"]}
    done = run_vramfit("dryrun", "--gpu", "24GB", "--", "x.py", env=environment, code=2)
    assert "`rtx-4090`" in done.stderr
