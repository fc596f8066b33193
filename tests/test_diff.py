"""`vramfit diff` on real programs."""

import json
import re

import browser
import pytest
from commands import ROOT, run_vramfit

TRACES = ROOT / "fixtures" / "traces"

TRAIN = """
import sys
import jax, jax.numpy as jnp
import numpy as np

batch = int(sys.argv[1])

def predict(params, x):
    for w in params[:-1]:
        x = jnp.tanh(x @ w)
    return x @ params[-1]

def loss_fn(params, x):
    return jnp.mean(predict(params, x) ** 2)

@jax.jit
def train_step(params, x):
    gradients = jax.grad(loss_fn)(params, x)
    return [w - 0.1 * gradient for w, gradient in zip(params, gradients)]

params = [jnp.ones((256, 256)) for _ in range(4)]
for _ in range(2):
    params = train_step(params, jax.device_put(np.zeros((batch, 512, 256), "float32")))
jax.block_until_ready(params)
"""


def diff(a, b, *options, code):
    return run_vramfit("diff", a, b, *options, code=code)


def compared(a, b):
    done = diff(a.trace, b.trace, "--json", "-", code=0)
    comparison = json.loads(done.stdout)
    assert (
        sum(change["change_bytes"] for change in comparison["changes"])
        == comparison["difference_bytes"]
    )
    assert (
        sum(owner["change_bytes"] for owner in comparison["owners"])
        == comparison["difference_bytes"]
    )
    peaks = [run.summary["peak_bytes"] for run in (a, b)]
    assert [comparison["a"]["total_bytes"], comparison["b"]["total_bytes"]] == peaks
    assert comparison["difference_bytes"] == peaks[1] - peaks[0]
    return comparison


def owner(comparison, name):
    [found] = [row for row in comparison["owners"] if row["owner"] == name]
    return found["a_bytes"], found["b_bytes"]


@pytest.fixture
def train(tmp_path, dryrun):
    """Run the program with one batch size; `program` is its text, `folder` its place."""

    def run(batch, program=TRAIN, folder="a", **options):
        script = tmp_path / folder / "train.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(program)
        return dryrun(script, batch, **options)

    return run


@pytest.mark.fast
def test_twice_the_batch_is_twice_the_batch_and_the_activations(train):
    comparison = compared(train(8), train(16))
    array = 8 * 512 * 256 * 4
    assert owner(comparison, "batch") == (array, 2 * array)
    saved = owner(comparison, "activations")
    assert saved[0] >= 2 * array, "the inputs of the second layer and of the third at least"
    assert saved[1] == 2 * saved[0]
    kept = owner(comparison, "parameters")
    assert kept[0] == kept[1] > 0
    assert comparison["located_bytes"] >= 0.95 * comparison["changed_bytes"]
    unnamed = [
        change["change_bytes"]
        for change in comparison["changes"]
        if not any(side and (side["path"] or side["site"]) for side in (change["a"], change["b"]))
    ]
    assert abs(sum(unnamed)) <= 0.05 * comparison["difference_bytes"]
    # The line of each activation is the user's own, and so is its operation.
    line = next(n for n, text in enumerate(TRAIN.splitlines(), 1) if "jnp.tanh" in text)
    sites = {
        change["b"]["site"]
        for change in comparison["changes"]
        if change["b"] and change["b"]["owner"] == "activations"
    }
    assert any(site.endswith(f"train.py:{line} (predict)") for site in sites), sites
    [batch] = [
        change for change in comparison["changes"] if change["b"] and change["b"]["path"] == "x"
    ]
    shapes = (batch["a"]["shape"], batch["b"]["shape"])
    assert shapes == ("f32[8,512,256]", "f32[16,512,256]")


def test_an_edited_program_in_another_folder_on_another_gpu(train):
    edited = TRAIN.replace("import sys\n", "import sys\n# a comment\n# and another\n")
    edited = edited.replace("(256, 256)", "(256, 256), jnp.bfloat16")
    before = train(8)
    moved = train(8, TRAIN.replace("import sys\n", "import sys\n\n\n"), "b")
    comparison = compared(before, moved)
    assert comparison["difference_bytes"] == 0
    assert comparison["changes"] == [], "the lines only moved"

    comparison = compared(before, train(8, edited, "b", gpu="a100-40g"))
    differences = {row["what"]: (row["a"], row["b"]) for row in comparison["other_differences"]}
    assert differences["GPU"] == ("h100-80g", "a100-40g")
    assert differences["pool limit"] == ("59.3 GiB", "29.5 GiB")
    # Four arrays of half the size.
    assert owner(comparison, "parameters") == (4 * 256 * 256 * 4, 4 * 256 * 256 * 2)
    paths = {
        change["a"]["path"]: change["b"]["path"]
        for change in comparison["changes"]
        if change["a"] and change["a"]["owner"] == "parameters"
    }
    assert paths == {f"params[{n}]": f"params[{n}]" for n in range(4)}


def test_the_page_shows_changes_with_their_sign_and_sorts_by_them(tmp_path):
    program = browser.required()
    runs = [TRACES / f"small_gpt-batch-{batch}.trace" for batch in (8, 16)]
    page = tmp_path / "diff.html"
    diff(*runs, "--html", page, code=0)
    with browser.Browser(program) as chromium:
        opened = chromium.open(page)
        column = (
            "[...document.querySelectorAll('section[data-type=table] tbody')][0]"
            ".querySelectorAll('tr:not(.spacer) td:nth-child(5)')"
        )
        changes = opened.run(f"[...{column}].map(cell => cell.textContent)")
        assert changes[:2] == ["+24.0 MiB", "+9.0 MiB"]
        assert "-32 B" in changes
        assert opened.run(f"{column}[0].title").endswith(" bytes")
        head = "document.querySelectorAll('thead tr')[0].cells[4].firstChild.click()"
        titles = f"[...{column}].map(cell => cell.title)"

        def exact():
            return [int(re.sub(r"[^-0-9]", "", title)) for title in opened.run(titles)]

        opened.run(head)
        falling = exact()
        opened.run(head)
        rising = exact()
        assert falling == sorted(falling, reverse=True)
        assert rising == sorted(rising)
        assert rising[0] < 0 < falling[0]
        # Both peaks, to one scale.
        widths = opened.run(
            "[...document.querySelectorAll('.stack')].map(bar => [...bar.children]"
            ".reduce((sum, part) => sum + parseFloat(part.style.width), 0))"
        )
        assert widths == pytest.approx([100 * 66.2 / 125.8, 100], abs=0.1)
        assert opened.run("getComputedStyle(document.querySelector('h1'), '::before').content") in (
            "none",
            "normal",
        )
        assert opened.complaints() == []
