"""A dry run reads the checkpoints of a program, and neither changes nor leaves any."""

import hashlib
import sys
from pathlib import Path

import pytest
from commands import run_command
from hosts import run_hosts

from vramfit._inprogram._dryrun_checkpoints._copy import _MAX_COPIED_BYTES

TRAINING = """
import os, sys
import jax, jax.numpy as jnp
import orbax.checkpoint as ocp
directory = os.path.abspath(sys.argv[1])
others = {}
state = {"weight": jax.random.normal(jax.random.key(0), (512, 1024))}
options = ocp.CheckpointManagerOptions(max_to_keep=2)
with ocp.CheckpointManager(directory, options=options) as manager:
    start, latest = 0, manager.latest_step()
    if latest is not None:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        state = manager.restore(latest, args=ocp.args.StandardRestore(abstract))
        start = latest + 1
    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 2, state))
    for number in range(start, start + 3):
        state = step(state) | others
        manager.save(number, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
    print("steps", start, manager.all_steps(), flush=True)
"""


def run(folder, program, *arguments, dryrun=True):
    """Run a program on a virtual GPU, or on the CPU; return what it printed."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "train.py", *arguments]
    if dryrun:
        command = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", "t4", "--", *command]
    variables = {} if dryrun else {"JAX_PLATFORMS": "cpu"}
    done = run_command(*command, env=variables, code=0, cwd=folder)
    return done


def hash_files(folder):
    """Return the files below a directory with hashes of what is in them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_each_dry_run_begins_where_the_program_would(tmp_path):
    for _ in range(2):
        done = run(tmp_path, TRAINING, "checkpoints")
        assert done.stdout.splitlines() == ["steps 0 [1, 2]"]
        assert "checkpoint directories were read but not changed" in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_real_checkpoints_are_restored_and_never_deleted(tmp_path):
    run(tmp_path, TRAINING, "checkpoints", dryrun=False)
    before = hash_files(tmp_path / "checkpoints")
    sizes = [Path(name).stat().st_size for name in before]
    assert min(sizes) < _MAX_COPIED_BYTES < max(sizes)
    for _ in range(2):
        assert run(tmp_path, TRAINING, "checkpoints").stdout.splitlines() == ["steps 3 [4, 5]"]
        assert hash_files(tmp_path / "checkpoints") == before


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(directory, state, force=True)
                checkpointer.wait_until_finished()
                restored = checkpointer.restore(directory, jax.tree.map(abstract, state))
                assert checkpointer.metadata(directory) is not None
            """,
            id="checkpointer",
        ),
        pytest.param(
            """
            ocp.v1.save_pytree(directory, state, overwrite=True)
            restored = ocp.v1.load_pytree(directory, jax.tree.map(abstract, state))
            """,
            id="v1",
        ),
        pytest.param(
            """
            from flax.training import checkpoints
            assert checkpoints.latest_checkpoint(directory) is None
            checkpoints.save_checkpoint(directory, state, step=7)
            restored = checkpoints.restore_checkpoint(directory, state)
            assert checkpoints.latest_checkpoint(directory).endswith("checkpoint_7")
            """,
            id="flax",
        ),
        pytest.param(
            """
            import flax
            from flax.training import checkpoints
            flax.config.update("flax_use_orbax_checkpointing", False)
            checkpoints.save_checkpoint("saved", state, step=7, keep=1)
            restored = checkpoints.restore_checkpoint(directory + "/checkpoint_7", state)
            """,
            id="flax-msgpack",
        ),
        pytest.param(
            """
            ocp.v1.partial.save(directory + "/1", state)
            ocp.v1.partial.finalize(directory + "/1")
            restored = ocp.v1.load(directory + "/1", jax.tree.map(abstract, state))
            """,
            id="v1-partial",
        ),
        pytest.param(
            """
            from etils import epath
            path, handler = epath.Path(directory) / "1", ocp.PyTreeCheckpointHandler()
            handler.save(path, args=ocp.args.PyTreeSave(state))
            handler.finalize(path)
            restored = handler.restore(path)
            """,
            id="handler",
        ),
        pytest.param(
            """
            with ocp.CheckpointManager(directory) as manager:
                manager.save(3, args=ocp.args.StandardSave(state))
            assert ocp.utils.checkpoint_steps(directory) == [3]
            steps = ocp.checkpoint_utils.checkpoints_iterator(
                directory, timeout=1, timeout_fn=lambda: True
            )
            assert list(steps) == [3]
            with ocp.StandardCheckpointer() as checkpointer:
                abstracts = jax.tree.map(abstract, state)
                restored = checkpointer.restore(directory + "/3/default", abstracts)
            """,
            id="steps",
        ),
        pytest.param(
            """
            import pickle
            pickle.loads(pickle.dumps(ocp.v1.save_pytree))(directory + "/1", state)
            restored = pickle.loads(pickle.dumps(ocp.v1.load_pytree))(directory + "/1")
            """,
            id="pickled",
        ),
    ],
)
def test_what_was_saved_can_be_restored_in_the_same_run(tmp_path, body):
    lines = [line.removeprefix(" " * 12) for line in body.strip("\n").splitlines()]
    program = (
        "import os, jax, jax.numpy as jnp, orbax.checkpoint as ocp\n"
        "directory, abstract = os.path.abspath('saved'), ocp.utils.to_shape_dtype_struct\n"
        "state = {'weight': jnp.ones((512, 1024))}\n" + "\n".join(lines) + "\n"
        "assert restored['weight'].shape == (512, 1024)\n"
    )
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "mine").write_text("kept")
    run(tmp_path, program)
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["mine"]


def test_nothing_is_saved_to_a_bucket(tmp_path):
    program = TRAINING.replace("os.path.abspath(sys.argv[1])", "'gs://vramfit-test/checkpoints'")
    assert run(tmp_path, program, "none").stdout.splitlines() == ["steps 0 [1, 2]"]


def test_what_orbax_rejects_it_rejects_in_a_dry_run(tmp_path):
    program = (
        "import jax.numpy as jnp, orbax.checkpoint as ocp\n"
        "try:\n"
        "    ocp.PyTreeCheckpointer().save('relative', {'weight': jnp.ones(8)})\n"
        "except ValueError as error:\n"
        "    assert 'absolute' in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    run(tmp_path, program)


def test_each_host_saves_and_restores_its_part(tmp_path):
    """Host 1 neither waits for directories of host 0, nor resumes from its checkpoints."""
    program = TRAINING.replace(
        "directory =", "jax.distributed.initialize()\ndirectory =", 1
    ).replace(
        'state = {"weight": jax.random.normal(jax.random.key(0), (512, 1024))}',
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "everywhere = NamedSharding(Mesh(jax.devices(), 'x'), P('x'))\n"
        "init = lambda: {'weight': jnp.ones((512, 1024)), 'count': jnp.zeros(())}\n"
        "shardings = {'weight': everywhere, 'count': NamedSharding(everywhere.mesh, P())}\n"
        "import numpy as np\n"
        "others = {'step': 7, 'rate': 0.5, 'array': np.ones(4)}\n"
        "state = jax.jit(init, out_shardings=shardings)() | others",
    )
    program += (
        "    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)\n"
        "    again = manager.restore(None, args=ocp.args.StandardRestore(abstract))\n"
        "    assert again['weight'].sharding == everywhere\n"
        "    assert again['step'] == 7 and again['array'].tolist() == [1.0] * 4\n"
    )
    run = run_hosts(tmp_path, program, "--host", "all", arguments=[tmp_path / "checkpoints"])
    assert run.code == 0, run.err[-3000:]
    assert run.out.splitlines() == ["steps 0 [1, 2]"]
    assert run.summary["hosts"]["mismatches"] == []
    assert not (tmp_path / "checkpoints").exists()


def test_an_error_names_the_line_of_the_program(tmp_path):
    program = (
        "import jax.numpy as jnp, orbax.checkpoint as ocp\n"
        "jnp.ones(8)\n"
        f"ocp.StandardCheckpointer().restore('{tmp_path}/missing')\n"
    )
    run = run_hosts(tmp_path, program, hosts=1)
    assert "FileNotFoundError at program.py:3 (<module>)" in " ".join(run.err.split())
