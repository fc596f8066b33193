"""Trains on batches that threads upload ahead: ``python uploads_ahead.py QUEUE THREADS``."""

import queue
import random
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCHES = 24


@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


def upload(batches, numbers):
    for number in numbers:
        time.sleep(random.random() / 100)  # reading takes a while
        batches.put((number, jax.device_put(np.ones((4096, 512), np.float32))))


count = int(sys.argv[2])
batches = queue.Queue(maxsize=int(sys.argv[1]))
threads = [
    threading.Thread(target=upload, args=(batches, range(first, BATCHES, count)), daemon=True)
    for first in range(count)
]
w = jnp.ones((512, 512))
w = train_step(w, jnp.ones((4096, 512)))
for thread in threads:
    thread.start()
seen = []
for _ in range(BATCHES):
    number, x = batches.get()
    w = train_step(w, x)
    time.sleep(random.random() / 100)
    seen.append(number)
assert sorted(seen) == list(range(BATCHES))
print("all batches")
