"""What the tests of `vramfit check` share: a program, and a project that checks it."""

import json
import os
import sys
import textwrap

from commands import clean_environment, run_command, run_vramfit

PROGRAM = """
import jax
import jax.numpy as jnp

def loss(w, x):
    h = jnp.tanh(x @ w)
    return jnp.sum((h @ w) ** 2)

@jax.jit
def step(w, x):
    return w - jax.grad(loss)(w, x)

if __name__ == "__main__":
    w = jnp.ones((1024, 1024))
    for _ in range(4):
        w = step(w, jnp.ones((256, 1024)))
"""
GROWN = PROGRAM.replace("((h @ w) ** 2)", "(jnp.sin(h @ w) @ w.T)")
GROWN_LINE = GROWN.splitlines().index("    return jnp.sum(jnp.sin(h @ w) @ w.T)") + 1


class Project:
    """A folder with a program and its entry."""

    def __init__(self, folder, cache):
        self.folder = folder
        self.environment = clean_environment(
            XDG_CACHE_HOME=str(cache),
            GIT_AUTHOR_NAME="a",
            GIT_AUTHOR_EMAIL="a@example.org",
            GIT_COMMITTER_NAME="a",
            GIT_COMMITTER_EMAIL="a@example.org",
            GIT_CONFIG_GLOBAL=os.devnull,
        )

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def entry(self, name="train", command=None, **more):
        command = command or [sys.executable, "train.py"]
        keys = {"name": name, "command": command, "gpus": ["l4"], **more}
        return "[[check.entry]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())

    def check(self, *options, code=0, env=None):
        env = self.environment | (env or {})
        return run_vramfit("check", *options, env=env, code=code, cwd=self.folder)

    def rows(self, *options, code=0, env=None):
        done = self.check("--json", "-", *options, code=code, env=env)
        return json.loads(done.stdout.splitlines()[-1])["rows"]

    def git(self, *arguments, code=0):
        env = self.environment
        return run_command("git", *arguments, env=env, code=code, cwd=self.folder).stdout

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def lock(self):
        return (self.folder / "vramfit.lock").read_text()
