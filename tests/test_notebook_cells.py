"""Lines of a notebook are named by the number of their cell, wherever a dry run tells a line."""

import json
import textwrap

from cli_dryrun import dryrun_of

# What IPython's kernel does: it compiles a cell under the name of a file that is not there, and
# keeps which input that was.
KERNEL = """
import types
cells = {"/tmp/ipykernel_77/1234.py": 3}
shell = types.SimpleNamespace(compile=types.SimpleNamespace(_filename_map=cells))
get_ipython = lambda: shell
def run(name, source):
    exec(compile(source, name, "exec"), globals())
"""
CELLS = """
run("/tmp/ipykernel_77/1234.py", '''
import os
import jax, jax.numpy as jnp
x = jnp.ones((512, 512))
@jax.jit
def spectrum(x):
    return jnp.abs(jnp.fft.rfft(jnp.sin(x)))
y = spectrum(x)
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
''')
# Without a kernel, and in Colab.
run("<ipython-input-4-1a2b>", '''
z = jnp.cos(y) @ y.T
z.block_until_ready()
raise KeyError("a cell's own error")
''')
"""


def test_every_line_of_a_notebook_is_named_by_its_cell(tmp_path):
    said = dryrun_of(tmp_path, textwrap.dedent(KERNEL + CELLS))
    text = json.dumps(said.summary) + said.page
    assert "ipykernel" not in text
    assert "ipython-input" not in text
    arrays = {part["site"] for part in said.summary["attribution"]["entries"]}
    assert "cell [3]:4 (<module>)" in arrays
    assert "cell [3]:7 (spectrum)" in arrays
    assert "cell [4]:2 (<module>)" in {row["site"] for row in said.summary["programs"]}
    needs = said.summary["scratch"]["needs"]
    assert {need["site"] for need in needs if need["library"] == "cuFFT"} == {
        "cell [3]:7 (spectrum)"
    }
    findings = said.summary["settings"]["findings"]
    assert "cell [3]:9" in json.dumps(findings)
    assert "cell [4]:4" in said.err.partition("unknown: ")[2]
