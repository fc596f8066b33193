"""Variables of a Keras model are called by their paths."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

MODEL = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import json, sys
import keras, numpy as np

model = keras.Sequential([
    keras.layers.Input((48,)),
    keras.layers.Dense(512, name="first"),
    keras.layers.BatchNormalization(name="norm"),
    keras.layers.Dropout(0.5),
    keras.layers.Dense(10, name="last"),
])
model.compile(optimizer="adam", loss="mse", metrics=["mae"], jit_compile=True)
x, y = np.ones((512, 48), "float32"), np.ones((512, 10), "float32")
"""
WAYS = {
    "fit": "model.fit(x, y, batch_size=128, verbose=0)",
    "evaluate": "model.evaluate(x, y, batch_size=128, verbose=0)",
    "predict": "model.predict(x, batch_size=128, verbose=0)",
    "train_on_batch": "for _ in range(3): model.train_on_batch(x, y)",
}
WRITE = """
variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
paths = {variable.path: list(variable.shape) for variable in variables}
json.dump(paths, open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize("way", WAYS)
def test_variables_have_the_paths_that_keras_gives(dryrun, tmp_path, way):
    script = tmp_path / "model.py"
    script.write_text(MODEL + WAYS[way] + WRITE)
    summary = dryrun(script, str(tmp_path / "paths.json")).summary
    paths = json.loads((tmp_path / "paths.json").read_text())
    shapes = {
        entry["path"].removeprefix("state['").removesuffix("']"): entry["shape"]
        for entry in summary["attribution"]["entries"]
        if entry["path"].startswith("state")
    }
    assert {"sequential/first/kernel", "sequential/norm/gamma"} <= shapes.keys()
    assert shapes.keys() <= paths.keys()
    for path, shape in shapes.items():
        assert shape.partition("[")[2] == ",".join(map(str, paths[path])) + "]"
    kernel = "adam/sequential_first_kernel_momentum"
    assert (kernel in shapes) == (way in ("fit", "train_on_batch"))


def variables(*shapes):
    return [SimpleNamespace(path=f"v{at}", shape=shape) for at, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    "state",
    [
        ([np.zeros(3)], []),
        ([np.zeros(2), np.zeros(2)], []),
        ([np.zeros(2)],),
        ([np.zeros(2)], [], [], [], []),
    ],
)
def test_a_state_that_is_not_the_models_has_no_paths(state):
    from vramfit._inprogram import _keras_names

    model = SimpleNamespace(
        trainable_variables=variables((2,)),
        non_trainable_variables=[],
        metrics_variables=[],
        optimizer=None,
    )
    assert _keras_names._paths(model, ([np.zeros(2)], [])) == ["v0"]
    assert _keras_names._paths(model, state) is None
