"""`VRAMFIT_PJRT_CALLS=1`: which functions of the PJRT API a program called, and how often."""

import re

from on_gpu import finish, start

TANH = """
x = np.ones((8, 8), np.float32)
for _ in range(3):
    x = jnp.tanh(x)
jax.block_until_ready(x)
"""

NOT_THERE = """
try:
    jnp.from_dlpack(jnp.ones(4))
except Exception as error:
    report(refused=str(error))
"""


def calls(lines, **settings):
    values, _, err, code = finish(start(lines, **settings))
    assert code == 0, err[-4000:]
    rows = re.findall(r"^vramfit: +(\d+) (PJRT_\w+)(  \(not available\))?$", err, re.MULTILINE)
    return values, {name: (int(count), bool(missing)) for count, name, missing in rows}


def test_every_call_is_counted():
    _, table = calls(TANH, VRAMFIT_PJRT_CALLS="1")
    assert table["PJRT_Client_Create"] == (1, False)
    assert table["PJRT_Client_Compile"] == (1, False)
    assert table["PJRT_LoadedExecutable_Execute"] == (3, False)
    # What was never called is not in the table.
    assert "PJRT_Client_DmaMap" not in table


def test_a_call_that_the_virtual_gpu_does_not_answer_is_marked():
    values, table = calls(NOT_THERE, VRAMFIT_PJRT_CALLS="1")
    missing = [name for name, (_, is_missing) in table.items() if is_missing]
    assert missing == ["PJRT_Client_CreateViewOfDeviceBuffer"]
    assert missing[0] in values["refused"]


def test_nothing_is_printed_unless_asked_for():
    assert calls(TANH)[1] == {}
    assert calls(TANH, VRAMFIT_PJRT_CALLS="0")[1] == {}
