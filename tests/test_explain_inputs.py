"""`vramfit explain` also reads the binary map of a pool, and what XLA dumps of programs."""

import json
import os
import sys
import threading

from commands import run_vramfit

MIB = 1 << 20


def explain(*arguments):
    done = run_vramfit("--quiet", "explain", "--json", "-", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def varint(number):
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number, value):
    """Return a field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def memory_dump(chunks, in_use):
    """Return the bytes of XLA's `MemoryDump` of a pool with chunks (address, size, in use)."""
    messages = [
        field(1, address) + field(2, size) + field(3, size) + field(8, int(used))
        for address, size, used in chunks
    ]
    dump = field(1, b"GPU_0_bfc")
    dump += b"".join(field(3, message) for message in messages)
    return dump + field(5, field(2, in_use) + field(3, in_use))


def test_the_binary_map_of_a_pool_is_read(tmp_path):
    address = 0x7F00_0000_0000
    sizes = [(24 * MIB, True), (8 * MIB, False), (40 * MIB, True), (56 * MIB, False)]
    chunks = []
    for size, used in sizes:
        chunks.append((address, size, used))
        address += size
    path = tmp_path / "memory.pb"
    path.write_bytes(memory_dump(chunks, 64 * MIB))
    code, explanation = explain(path)
    assert code == 0
    assert explanation["causes"][0]["confidence"] == "possible", "the request is not in a map"
    figures = explanation["figures"]
    assert figures["in_use_bytes"] == 64 * MIB
    assert figures["pool_bytes"] == 128 * MIB
    assert figures["free_bytes"] == 64 * MIB
    assert figures["largest_free_block_bytes"] == 56 * MIB
    assert figures["largest_fit"]["is_exact"]
    assert figures["largest_fit"]["now_bytes"] == 56 * MIB


def test_a_named_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "log"
    os.mkfifo(pipe)

    def write_log():
        with open(pipe, "w") as log:
            log.write("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1048576 bytes.\n")

    writer = threading.Thread(target=write_log, daemon=True)
    writer.start()
    code, explanation = explain(pipe)
    writer.join(timeout=120)
    assert code == 0
    assert explanation["figures"]["requested_bytes"] == MIB


def test_the_map_is_joined_with_the_log_that_names_the_request(tmp_path):
    base = 0x7F00_0000_0000
    chunks = [(base + MIB * 2 * i, MIB * 2, i % 2 == 0) for i in range(64)]
    path = tmp_path / "memory.pb"
    path.write_bytes(memory_dump(chunks, 64 * MIB))
    log = tmp_path / "train.log"
    log.write_text(
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00MiB "
        "(rounded to 16777216)requested by op\n"
    )
    code, explanation = explain(log, path)
    assert code == 0
    first = explanation["causes"][0]
    assert (first["id"], first["confidence"]) == ("fragmentation", "sure")
    assert explanation["figures"]["largest_free_block_bytes"] == 2 * MIB
    assert first["evidence"][0]["file"] == str(log)


def test_the_programs_that_xla_has_dumped_are_read(tmp_path, write_script):
    program = write_script(
        "import jax, jax.numpy as jnp\n"
        "step = jax.jit(lambda x: jnp.tanh(x @ x) @ x)\n"
        "step.lower(jax.ShapeDtypeStruct((32768, 32768), jnp.float32)).compile()\n"
    )
    dump = tmp_path / "dump"
    flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_proto"
    command = ["dryrun", "--gpu", "h100-80g", "--", sys.executable, program]
    run_vramfit(*command, env={"XLA_FLAGS": flags})
    # An argument, the result and a temporary at least, of 4 GiB each.
    array = 4 << 30
    code, explanation = explain(dump, "--gpu", "t4")
    assert explanation["figures"]["program_need"]["argument_bytes"] == array
    assert explanation["figures"]["program_need"]["total_bytes"] >= 3 * array
    first = explanation["causes"][0]
    assert (code, first["id"], first["confidence"]) == (0, "pool-too-small", "sure")
    assert max(buffer["bytes"] for buffer in explanation["buffers"]) == array
    code, explanation = explain(dump, "--gpu", "h100-80g")
    assert (code, explanation["causes"][0]["id"]) == (1, "not-memory")


def test_the_process_that_wrote_a_line_is_named(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "[rank0]: step 1 loss 2.5\n"
        "[rank3]: jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
        "trying to allocate 1073741824 bytes.\n"
    )
    _, explanation = explain(log)
    evidence = explanation["causes"][0]["evidence"][0]
    assert (evidence["line"], evidence["process"]) == (2, "rank3")
    assert evidence["text"].startswith("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED")
