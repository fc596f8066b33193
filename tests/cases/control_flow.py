"""Programs whose control flow depends on small values that stand beside large state.

Each function returns what its control flow came to. The weights are only scaled, so that the same
script runs for real on a CPU in seconds.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

WEIGHTS = jnp.ones((2900, 2900))  # 32.1 MiB
PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def step_of_a_train_state():
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state):
        return {"params": state["params"] * 0.9, "step": state["step"] + 1}

    state = {"params": WEIGHTS * 2, "step": jnp.int32(0)}
    while state["step"] < 70:
        state = step(state)
    return int(state["step"])


@program
def position_in_a_cache():
    @functools.partial(jax.jit, donate_argnums=0)
    def decode(cache, token):
        def layer(carry, cached):
            x, position = carry
            cached = lax.dynamic_update_slice(cached, x[None], (position, 0))
            return (x + cached.mean(0), position), cached

        embedded = jnp.ones(2900) * token
        (x, position), keys = lax.scan(layer, (embedded, cache["position"]), cache["keys"])
        return {"keys": keys, "position": position + 1}, x[0]

    cache = {"keys": jnp.zeros((2, 2900, 2900)), "position": jnp.int32(0)}
    calls = 0
    while int(cache["position"]) < 9:
        cache, _ = decode(cache, 1.0)
        calls += 1
    return calls


@program
def count_of_an_optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 5, 20)
    transform = optax.adam(schedule)

    @jax.jit
    def step(params, state):
        updates, state = transform.update(jax.tree.map(lambda p: p * 0.1, params), state, params)
        return optax.apply_updates(params, updates), state

    params = {"w": WEIGHTS}
    state = transform.init(params)
    rates = []
    while not rates or rates[-1] > 5e-4 or len(rates) < 6:
        params, state = step(params, state)
        rates.append(float(schedule(state[0].count)))
    return len(rates)


@program
def line_search():
    @jax.jit
    def trial(weights, x, length):
        value, slope = jax.value_and_grad(lambda x: ((x - 3) ** 4).sum())(x)
        new = x - length * slope
        return weights * 0.5, new, ((new - 3) ** 4).sum() < value - 0.1 * length * (slope**2).sum()

    weights, x, halvings = WEIGHTS, jnp.zeros(3), 0
    for _ in range(5):
        length = 1.0
        while True:
            weights, new, is_enough = trial(weights, x, length)
            if is_enough:
                break
            length, halvings = length / 2, halvings + 1
        x = new
    return halvings


@program
def adaptive_integrator():
    @jax.jit
    def advance(field, t, y, h):
        def slope(t, y):
            return jnp.stack([y[1], (1 - y[0] ** 2) * y[1] * 2 - y[0]])

        a = slope(t, y)
        b = slope(t + h, y + h * a)
        error = jnp.abs(h * (b - a) / 2).max()
        is_good = error < 1e-2
        new_h = h * jnp.clip(0.9 * jnp.sqrt(1e-2 / (error + 1e-9)), 0.3, 2.0)
        return (
            field * 0.9,
            jnp.where(is_good, t + h, t),
            jnp.where(is_good, y + h * (a + b) / 2, y),
            new_h,
            is_good,
        )

    field, t, y, h = WEIGHTS, jnp.float32(0), jnp.array([2.0, 0.0]), jnp.float32(0.1)
    accepted = rejected = 0
    while t < 3:
        field, t, y, h, is_good = advance(field, t, y, h)
        accepted, rejected = accepted + bool(is_good), rejected + (not is_good)
    return accepted, rejected


@program
def sampler():
    @jax.jit
    def propose(weights, key, x):
        key, one, two = jax.random.split(key, 3)
        new = x + jax.random.normal(one)
        is_accepted = jax.random.uniform(two) < jnp.exp((x**2 - new**2) / 2)
        return weights * 0.9, key, jnp.where(is_accepted, new, x), is_accepted

    weights, key, x, accepted = WEIGHTS, jax.random.key(3), jnp.float32(0), 0
    for _ in range(30):
        weights, key, x, is_accepted = propose(weights, key, x)
        accepted += bool(is_accepted)
    return accepted


@program
def early_stopping():
    @jax.jit
    def step(weights, model, rate):
        loss, slope = jax.value_and_grad(lambda m: ((m - 2) ** 2).sum() + 1)(model)
        return weights * 0.9, model - rate * slope, loss

    weights, model, best, patience, steps = WEIGHTS, jnp.zeros(4), np.inf, 0, 0
    while patience < 3:
        weights, model, loss = step(weights, model, 0.4)
        steps += 1
        patience = 0 if loss < best - 1e-3 else patience + 1
        best = min(best, float(loss))
    return steps


@program
def curriculum():
    @jax.jit
    def step(weights, count):
        return weights * 0.9, count + 1, jnp.searchsorted(jnp.array([3, 7, 12]), count)

    weights, count, phases = WEIGHTS, jnp.int32(0), []
    while not phases or phases[-1] < 3:
        weights, count, phase = step(weights, count)
        phases.append(int(phase))
    return phases


@program
def newton():
    @jax.jit
    def step(weights, x):
        def energy(x):
            return ((x - jnp.arange(4.0)) ** 4).sum() + ((x - 1) ** 2).sum()

        change = jnp.linalg.solve(jax.hessian(energy)(x), jax.grad(energy)(x))
        return weights * 0.9, x - change, jnp.abs(change).max()

    weights, x, change, rounds = WEIGHTS, jnp.zeros(4), 1.0, 0
    while change > 1e-4:
        weights, x, change = step(weights, x)
        rounds += 1
    return rounds


@program
def gaussian_process():
    points = jnp.linspace(0, 3, 12)
    values = jnp.sin(points)

    @jax.jit
    def likelihood(weights, scale):
        kernel = jnp.exp(-((points[:, None] - points) ** 2) / scale) + 0.01 * jnp.eye(12)
        factor = jnp.linalg.cholesky(kernel)
        solved = jax.scipy.linalg.cho_solve((factor, True), values)
        return weights * 0.9, -values @ solved / 2 - jnp.log(jnp.diag(factor)).sum()

    weights, scale, best, tries = WEIGHTS, 0.1, -np.inf, 0
    while True:
        weights, found = likelihood(weights, scale)
        tries += 1
        if found < best:
            return tries
        best, scale = float(found), scale * 1.5


@program
def kalman_filter():
    @jax.jit
    def step(weights, mean, covariance, seen):
        innovation = seen - mean[0]
        variance = covariance[0, 0] + 0.5
        is_outlier = innovation**2 / variance > 9
        gain = jnp.linalg.solve(covariance + 0.5 * jnp.eye(2), covariance)[:, 0]
        gain = jnp.where(is_outlier, 0.0, gain)
        return (
            weights * 0.9,
            mean + gain * innovation,
            covariance * 0.9 + 0.05 * jnp.eye(2),
            is_outlier,
        )

    weights, mean, covariance, outliers = WEIGHTS, jnp.zeros(2), jnp.eye(2), 0
    for seen in [0.1, 0.3, 9.0, 0.2, 0.4, -12.0, 0.3]:
        weights, mean, covariance, is_outlier = step(weights, mean, covariance, seen)
        if is_outlier:
            outliers += 1
    return outliers


@program
def evolution_strategy():
    @jax.jit
    def generation(weights, key, mean, covariance):
        key, part = jax.random.split(key)
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(part, (16, 3)) * jnp.sqrt(jnp.maximum(values, 1e-6))
        people = mean + noise @ vectors.T
        order = jnp.argsort((people**2).sum(1))[:4]
        chosen = people[order]
        new = chosen.mean(0)
        spread = (chosen - mean).T @ (chosen - mean) / 4
        return weights * 0.9, key, new, 0.7 * covariance + 0.3 * spread, (new**2).sum()

    weights, key = WEIGHTS, jax.random.key(0)
    mean, covariance, generations = jnp.full(3, 4.0), jnp.eye(3), 0
    while True:
        weights, key, mean, covariance, fitness = generation(weights, key, mean, covariance)
        generations += 1
        if fitness < 1e-1 or generations > 99:
            return generations


@program
def conjugate_gradients():
    matrix = jnp.diag(jnp.arange(1.0, 9.0)) + 0.1

    @jax.jit
    def step(weights, x, r, p):
        a = r @ r / (p @ matrix @ p)
        new = r - a * matrix @ p
        return weights * 0.9, x + a * p, new, new + (new @ new) / (r @ r) * p, jnp.linalg.norm(new)

    weights, x, r, norm, rounds = WEIGHTS, jnp.zeros(8), jnp.ones(8), 1.0, 0
    p = r
    while norm > 1e-3:
        weights, x, r, p, norm = step(weights, x, r, p)
        rounds += 1
    return rounds


@program
def bisection():
    @jax.jit
    def halve(weights, low, high):
        middle = (low + high) / 2
        is_below = middle**3 < 2
        return weights * 0.9, jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    weights, low, high, rounds = WEIGHTS, jnp.float32(0), jnp.float32(2), 0
    while high - low > 1e-3:
        weights, low, high = halve(weights, low, high)
        rounds += 1
    return rounds


@program
def power_iteration():
    matrix = jnp.array([[2.0, 1.0], [1.0, 3.0]])

    @jax.jit
    def step(weights, v):
        new = matrix @ v
        new = new / jnp.linalg.norm(new)
        return weights * 0.9, new, jnp.abs(new - v).max()

    weights, v, change, rounds = WEIGHTS, jnp.array([1.0, 0.0]), 1.0, 0
    while change > 1e-3:
        weights, v, change = step(weights, v)
        rounds += 1
    return rounds


@program
def loop_of_the_device():
    @jax.jit
    def run(weights, n):
        return lax.while_loop(
            lambda c: c[1] < 100, lambda c: (c[0] * 0.9, c[1] * 2 + 1, c[2] + 1), (weights, n, 0)
        )

    _, last, rounds = run(WEIGHTS, jnp.int32(1))
    return int(last), int(rounds)


@program
def counts_of_a_scan():
    @jax.jit
    def run(weights, n):
        def body(carry, i):
            weights, n = carry
            n = lax.cond(n % 3 == 0, lambda n: n + 1, lambda n: n * 2, n)
            return (weights * 0.9, n), n

        return lax.scan(body, (weights, n), jnp.arange(6))

    (_, n), counts = run(WEIGHTS, jnp.int32(1))
    return int(n), [count for count in counts.tolist() if count % 2]


@program
def longest_of_a_batch():
    @jax.jit
    def batch(weights, key):
        return weights * 0.9, jax.random.randint(key, (8,), 1, 50)

    _, lengths = batch(WEIGHTS, jax.random.key(5))
    return jnp.zeros((8, int(lengths.max()))).shape


@program
def mask_of_a_batch():
    @jax.jit
    def batch(weights, key):
        return weights * 0.9, jax.random.uniform(key, (64,)) > 0.7

    _, mask = batch(WEIGHTS, jax.random.key(6))
    return jnp.nonzero(mask)[0].shape, jnp.arange(64)[mask].shape


@program
def labels_of_a_batch():
    @jax.jit
    def batch(weights, key):
        return weights * 0.9, jax.random.randint(key, (32,), 0, 20)

    _, labels = batch(WEIGHTS, jax.random.key(7))
    return jnp.unique(labels).shape


@program
def pointer_of_a_replay_buffer():
    @functools.partial(jax.jit, donate_argnums=0)
    def add(buffer, row):
        data = lax.dynamic_update_slice(buffer["data"], row[None], (buffer["at"], 0))
        return {
            "data": data,
            "at": (buffer["at"] + 1) % 5,
            "size": jnp.minimum(buffer["size"] + 1, 5),
        }

    buffer = {"data": jnp.zeros((2900, 2900)), "at": jnp.int32(0), "size": jnp.int32(0)}
    adds = 0
    while buffer["size"] < 5 or buffer["at"] != 3:
        buffer = add(buffer, jnp.ones(2900))
        adds += 1
    return adds


@program
def scale_of_a_loss():
    @jax.jit
    def step(weights, scale, good):
        is_grown = good >= 3
        return (
            weights * 0.9,
            jnp.where(is_grown, scale * 2, scale),
            jnp.where(is_grown, 0, good + 1),
        )

    weights, scale, good, steps = WEIGHTS, jnp.float32(1), jnp.int32(0), 0
    while scale < 16:
        weights, scale, good = step(weights, scale, good)
        steps += 1
    return steps


@program
def branches_of_a_switch():
    @jax.jit
    def step(weights, n):
        branches = [lambda w, n: (w, n + 1), lambda w, n: (w * 2, n + 3), lambda w, n: (w.T, n + 2)]
        return lax.switch(n % 3, branches, weights, n)

    weights, n, seen = WEIGHTS, jnp.int32(0), []
    while n < 20:
        weights, n = step(weights, n)
        seen.append(int(n))
    return seen


@program
def functions_in_functions():
    @jax.jit
    def inner(weights, n):
        return weights * 0.9, n * 2

    @jax.jit
    def outer(weights, n):
        weights, n = inner(weights, n)
        weights, n = inner(weights, n + 1)
        return weights, n

    weights, n, calls = WEIGHTS, jnp.int32(0), 0
    while n < 1000:
        weights, n = outer(weights, n)
        calls += 1
    return calls


@program
def loops_of_a_batch():
    @jax.jit
    def run(weights, starts):
        def one(n):
            return lax.while_loop(
                lambda c: c[0] != 1,
                lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1),
                (n, 0),
            )[1]

        return weights * 0.9, jax.vmap(one)(starts)

    _, rounds = run(WEIGHTS, jnp.arange(1, 9))
    return [n for n in rounds.tolist() if n > 5]


@program
def auxiliary_count_of_a_gradient():
    @jax.jit
    def step(weights, count):
        @jax.checkpoint
        def loss(weights):
            return (weights**2).sum(), count + 2

        gradient, count = jax.grad(loss, has_aux=True)(weights)
        return weights - 0.1 * gradient, count

    weights, count, steps = WEIGHTS, jnp.int32(0), 0
    while count < 11:
        weights, count = step(weights, count)
        steps += 1
    return steps


@program
def period_of_a_signal():
    @jax.jit
    def measure(weights, signal):
        return weights * 0.9, jnp.abs(jnp.fft.rfft(signal))[1:].argmax() + 1

    _, frequency = measure(WEIGHTS, jnp.sin(jnp.arange(64.0) * 2 * np.pi * 5 / 64))
    return 64 // int(frequency)


@program
def rank_of_a_matrix():
    @jax.jit
    def factor(weights, matrix):
        return weights * 0.9, jnp.linalg.svd(matrix, compute_uv=False)

    matrix = jnp.outer(jnp.arange(6.0), jnp.ones(5)) + jnp.eye(6, 5) * jnp.array([1, 1, 0, 0, 0.0])
    _, values = factor(WEIGHTS, matrix)
    rank = int((values > 1e-3).sum())
    return jnp.zeros((6, rank)).shape


@program
def replicated_count_of_sharded_weights():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    @jax.jit
    def step(weights, count):
        return weights * 0.9 + weights.sum() * 0, count + 1

    weights, count = jax.device_put(WEIGHTS, sharded), jnp.int32(0)
    steps = 0
    while count < 5:
        weights, count = step(weights, count)
        steps += 1
    return steps


@program
def moving_average():
    @jax.jit
    def step(weights, average, seen):
        average = 0.5 * average + 0.5 * seen
        return weights * 0.9, average, average > 0.9

    weights, average, is_full, steps = WEIGHTS, jnp.float32(0), False, 0
    while not is_full:
        weights, average, is_full = step(weights, average, 1.0)
        steps += 1
    return steps


def main():
    named = sys.argv[1:]
    for function in PROGRAMS:
        if not named or function.__name__ in named:
            print(function.__name__, function(), flush=True)


if __name__ == "__main__":
    main()
