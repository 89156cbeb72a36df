"""A training loop of JAX whose steps donate their state, saved as it goes; it goes on where it was stopped.

    python jax_training.py runs/jax 200      # stop it with Ctrl-C, and start it again

Needs jax and shardwright.
"""
import functools
import sys

import jax
import jax.numpy as jnp

import shardwright


def begin() -> dict:
    first, second = jax.random.split(jax.random.key(0))
    return {"params": {"w1": jax.random.normal(first, (8, 64)) / 3, "w2": jax.random.normal(second, (64, 1)) / 8}, "key": jax.random.key(1)}


def loss_of(params: dict, x: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ params["w1"]) @ params["w2"] - jnp.sin(x.sum(axis=1, keepdims=True))) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def train(state: dict) -> tuple[dict, jax.Array]:
    key, used = jax.random.split(state["key"])
    loss, slopes = jax.value_and_grad(loss_of)(state["params"], jax.random.normal(used, (64, 8)))
    return {"params": jax.tree.map(lambda p, slope: p - 0.05 * slope, state["params"], slopes), "key": key}, loss


def main(directory: str, steps: int) -> None:
    state = begin()
    with shardwright.CheckpointManager(directory, keep_last=3, keep_every=100, best_metric="loss") as manager:
        latest = manager.latest()
        if latest is not None:
            state = manager.restore(target=state)
            print(f"goes on after step {latest}, loss {manager.metrics()['loss']:.4f}")
        for step in range(0 if latest is None else latest + 1, steps):
            state, loss = train(state)
            if step % 10 == 9:
                manager.save(step, state, metrics={"loss": float(loss)})  # before the next step donates it
    print(f"loss {float(loss):.4f}" if latest is None or latest + 1 < steps else "was done already")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/jax", int(sys.argv[2]) if len(sys.argv) > 2 else 200)
