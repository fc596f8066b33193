"""Arrays of many sizes come and go in an order that leaves holes; odd sizes show the rounding."""

import random

import jax.numpy as jnp
import numpy as np
from allocator_stats import print_stats

MIB = 1 << 20
draw = random.Random(0)
print_stats("before")
for size in (1, 255, 256, 257, 1000, MIB - 1, MIB + 1):
    array = jnp.asarray(np.zeros(size, np.uint8))
    array.block_until_ready()
    print_stats(f"{size} bytes")
del array
alive = []
for number in range(200):
    if alive and draw.random() < 0.45:
        alive.pop(draw.randrange(len(alive)))
    else:
        size = draw.choice([3, 17, 40, 90, 250]) * MIB + draw.randrange(5000)
        alive.append(jnp.zeros(size, jnp.uint8))
        alive[-1].block_until_ready()
    if number % 10 == 9:
        print_stats(f"event {number}")
alive.clear()
print_stats("all gone")
