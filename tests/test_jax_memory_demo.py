"""The notebook `examples/jax_memory_demo.ipynb` shows what it really prints, on the virtual GPU."""

import json
import sys

from commands import ROOT, run_vramfit

NOTEBOOK = ROOT / "examples" / "jax_memory_demo.ipynb"


def execute(notebook, summary_file):
    """Execute a notebook on a virtual T4; return the dry run's summary and standard error."""
    command = ["dryrun", "--full", "--gpu", "t4", "--json", summary_file, "--", sys.executable]
    done = run_vramfit(*command, ROOT / "scripts" / "run_notebook.py", notebook)
    return json.loads(summary_file.read_text()), done.stderr


def test_s22_the_notebook_shows_what_its_cells_print(tmp_path):
    summary, err = execute(NOTEBOOK, tmp_path / "summary.json")
    assert summary["process_exit"]["code"] == 0, err[-6000:]
    # One of its cells runs out of memory on purpose, and goes on.
    assert summary["oom"]["requested_bytes"] == 8 << 30


def test_s22_an_output_that_is_not_fresh_is_found(tmp_path):
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code[0]["outputs"][0]["text"][0] = "set XLA_CLIENT_MEM_FRACTION=0.1: as it was\n"
    notebook["cells"] = code[:2]
    stale = tmp_path / "stale.ipynb"
    stale.write_text(json.dumps(notebook))
    summary, err = execute(stale, tmp_path / "summary.json")
    assert summary["process_exit"]["code"] == 1
    assert "cell [1] shows something else" in err
    assert "-set XLA_CLIENT_MEM_FRACTION=0.1: as it was" in err


def test_s22_the_settings_come_before_jax():
    notebook = json.loads(NOTEBOOK.read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code[0].startswith("import vramfit.jax_memory_fix as fix\n")
    assert "import jax\n" not in code[0]
    assert all(not line.startswith(("!", "%")) for cell in code for line in cell.splitlines())
