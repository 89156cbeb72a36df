"""Steps of Orbax's CheckpointManager and of ours, in one directory, both ways."""
import numpy as np
import pytest

import shardwright

ocp = pytest.importorskip("orbax.checkpoint")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def state(scale: float) -> dict:
    return {"params": {"w": np.arange(12, dtype="f4").reshape(3, 4) * scale, "layers": [jnp.full((4,), scale, jnp.bfloat16), jnp.ones(3)]},
            "count": 3, "rate": 0.5 * scale, "empty": {}}


def same(found, expected):
    leaves, expected_leaves = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(leaves) == len(expected_leaves)
    for a, b in zip(leaves, expected_leaves):
        assert np.asarray(a).tobytes() == np.asarray(b).astype(np.asarray(a).dtype).tobytes(), (a, b)


def options(**more):
    return ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"], best_mode="min", **more)


def of_orbax(root, **more):
    return ocp.CheckpointManager(root, options=options(**more))


def test_orbax_finds_reads_and_continues_ours(tmp_path):
    root = tmp_path / "run"
    with shardwright.CheckpointManager(root) as ours:
        for step, loss in ((1, 0.5), (2, 0.25), (4, 0.75)):
            ours.save(step, state(step), metrics={"loss": loss}, metadata={"by": "us"}, iterator_state={"at": step})
    with of_orbax(root, max_to_keep=2) as theirs:
        assert list(theirs.all_steps()) == [1, 2, 4]
        assert theirs.latest_step() == 4 and theirs.best_step() == 2
        assert theirs.metrics(2) == {"loss": 0.25}
        assert theirs.metadata(4).custom_metadata == {"by": "us"}
        restored = theirs.restore(2, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
        same(restored.state, state(2))
        target = jax.tree.map(lambda leaf: leaf, state(9))
        same(theirs.restore(1, args=ocp.args.Composite(state=ocp.args.StandardRestore(target))).state, state(1))
        theirs.save(5, args=ocp.args.Composite(state=ocp.args.StandardSave(state(5))), metrics={"loss": 0.1})
        theirs.wait_until_finished()
    with shardwright.CheckpointManager(root, best_metric="loss") as ours:
        assert ours.all_steps() == [2, 5]
        assert ours.latest() == 5 and ours.best() == 5
        same(ours.restore(), state(5))
        same(ours.restore(2), state(2))
        ours.save(6, state(6), metrics={"loss": 1})
        ours.wait()
        assert ours.all_steps() == [2, 5, 6]
    assert of_orbax(root).latest_step() == 6


def test_ours_reads_whole_steps_of_orbax_only(tmp_path):
    root = tmp_path / "run"
    with of_orbax(root) as theirs:
        for step in (0, 10):
            theirs.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(state(step + 1)), meta=ocp.args.JsonSave({"a": 1})),
                        metrics={"loss": step})
    (root / "20").mkdir()  # a step to Orbax
    (root / "30.orbax-checkpoint-tmp").mkdir()
    with shardwright.CheckpointManager(root) as ours:
        assert ours.all_steps() == [0, 10] and ours.latest() == 10
        assert {info.step: info.complete for info in ours.steps()} == {0: True, 10: True, 20: False}
        assert ours.metrics(10) == {"loss": 10}
        same(ours.restore(), state(11))
        kept = ours.restore(target=state(1))
        same(kept, state(11))
        assert isinstance(kept["params"]["layers"][0], jax.Array) and isinstance(kept["params"]["w"], np.ndarray) and kept["count"] == 3
        for manifest in (root / "10" / "state").rglob("manifest.ocdbt"):
            manifest.unlink()
        assert ours.latest() == 0


def test_single_item_with_prefix(tmp_path):
    root = tmp_path / "run"
    names = ocp.CheckpointManagerOptions(step_prefix="ckpt", step_format_fixed_length=6)
    with ocp.CheckpointManager(root, options=names) as theirs:
        theirs.save(5, args=ocp.args.StandardSave(state(5)))
    with shardwright.CheckpointManager(root, prefix="ckpt", digits=6, item="default") as ours:
        assert ours.latest() == 5
        same(ours.restore(), state(5))
        ours.save(7, state(7))
    with ocp.CheckpointManager(root, options=names) as theirs:
        assert theirs.latest_step() == 7
        same(theirs.restore(7, args=ocp.args.StandardRestore()), state(7))


def test_shardings_and_random_keys(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    tree = {"w": jax.device_put(jnp.arange(8.0), sharding), "key": jax.random.key(7, impl="rbg")}
    with shardwright.CheckpointManager(tmp_path / "run") as ours:
        ours.save(1, tree)
    with ocp.CheckpointManager(tmp_path / "run") as theirs:
        restored = theirs.restore(1, args=ocp.args.Composite(state=ocp.args.StandardRestore())).state
    assert restored["w"].sharding == sharding
    assert jax.random.key_impl(restored["key"]) == jax.random.key_impl(tree["key"])
    assert (jax.random.key_data(restored["key"]) == jax.random.key_data(tree["key"])).all()
    with shardwright.CheckpointManager(tmp_path / "run") as ours:
        for target in (None, tree):
            key = ours.restore(target=target)["key"]
            assert (jax.random.bits(key) == jax.random.bits(tree["key"])).all()
