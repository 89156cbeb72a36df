"""shardwright.CheckpointManager: trees that come back as they were, held still meanwhile, and restored into others."""
import collections
import contextlib
import gc
import os

import ml_dtypes
import numpy as np
import pytest
from trees import same

import shardwright
from shardwright import CheckpointManager

Moments = collections.namedtuple("Moments", "mu nu")
Nothing = collections.namedtuple("Nothing", "")  # as optax has
FORMATS = ["orbax", "safetensors", "keras-sharded", "keras-h5"]


def tree(scale=1.0) -> dict:
    return {"w": np.arange(12.0, dtype="f4").reshape(3, 4) * np.float32(scale), "layers": [np.full(4, scale, ml_dtypes.bfloat16), {"b": np.arange(3)}],
            "optimizer": Moments(np.ones(2) * scale, (np.zeros(3, "i4"), ())), "by number": {10: 1.5, 2: {0: [np.ones(1)]}, "x": None}, "step": 3, "rate": 0.5, "ready": True, "f16": np.float16(2), "note": "text",
            "none": None, "empty": {}, "nothing": (Nothing(), ()), "no list": [], "transposed": np.arange(6.0).reshape(2, 3).T}


@pytest.mark.parametrize("format", FORMATS)
def test_trees_come_back(root, format):
    with CheckpointManager(root, format=format) as manager:
        manager.save(5, tree(2), metadata={"args": [1, {"a": None}]}, metrics={"loss": 0.25}, iterator_state={"at": 7})
        manager.wait()
        same(manager.restore(), tree(2))
        restored = manager.restore(5, target=tree(), verify=True)
        same(restored, tree(2))
        same(manager.restore(5, target=...), tree(2))
        assert list(restored["by number"]) == [10, 2, "x"]
        assert manager.metadata() == {"args": [1, {"a": None}]} and manager.metrics() == {"loss": 0.25}
        assert manager.iterator_state() == {"at": 7}
    assert sorted(p.name for p in (root / "5").iterdir()) == sorted(
        ["_CHECKPOINT_METADATA", "commit_success.txt", "iterator", "metrics", "shardwright.manifest.json", "state"])


def test_safetensors_state_is_a_repository(root):
    from safetensors.numpy import load_file
    with CheckpointManager(root, format="safetensors") as manager:
        manager.save(1, {"a": {"b": np.ones(3)}, "n": 1})
    assert sorted(load_file(root / "1" / "state" / "model.safetensors")) == ["a.b", "n"]


def test_values_are_held_still(root):
    array = np.ones(2_000_000)
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": array})
        array[:] = 2
        manager.save(2, {"a": array})
        array[:] = 3
        del array
        gc.collect()
        manager.wait()
        assert (manager.restore(1)["a"] == 1).all() and (manager.restore(2)["a"] == 2).all()
        after_training = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        found = set()
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                found.add(os.getpriority(os.PRIO_PROCESS, int(task)))
        assert after_training in found


def test_by_reference_holds_what_lies_there(root):
    array = np.ones(1000)
    with CheckpointManager(root, hold="reference") as manager:
        manager.save(1, {"a": array})
        del array
        gc.collect()
        manager.wait()
        assert (manager.restore()["a"] == 1).all()
        with pytest.raises(shardwright.InvalidArgumentError, match="by reference"):
            manager.save(2, {"a": shardwright.Producer((3,), "float32", whole=lambda: np.ones(3, "f4"))})


def test_what_does_not_fit_the_staging_is_saved_before_save_returns(root):
    with CheckpointManager(root, staging=1000) as manager:
        manager.save(1, {"a": np.ones(1000)})
        assert manager.latest() == 1
    with CheckpointManager(root, staging=1000, hold="copy") as manager:
        with pytest.raises(shardwright.ResourceExhaustedError):
            manager.save(2, {"a": np.ones(1000)})


def test_producers_and_ties_to_files(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"p": shardwright.Producer((3,), "float32", whole=lambda: np.full(3, 7, "f4")), "view": np.arange(10)[::3]})
        manager.wait()
        swapped = manager.restore(target={"p": np.zeros(3, ">f4"), "view": ...})
        assert swapped["p"].dtype == ">f4" and swapped["p"].tolist() == [7, 7, 7]
        restored = manager.restore()
        assert restored["p"].tolist() == [7, 7, 7] and restored["view"].tolist() == [0, 3, 6, 9]


# ---- restoring into something

def test_a_target_is_checked_whole_before_anything_is_read(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": np.ones((2, 3)), "b": np.ones(2, "f4"), "c": "text", "d": np.ones(1)})
        manager.wait()
        with pytest.raises(shardwright.InvalidArgumentError, match="does not fit the target") as raised:
            manager.restore(target={"a": np.ones((3, 2)), "b": np.ones(2), "c": np.ones(1), "e": np.ones(1)})
        assert raised.value.context == (
            "missing in the checkpoint: 'e'", "unexpected in the checkpoint: 'd'",
            "different: 'a' is [2, 3] in the checkpoint, [3, 2] in the target", "different: 'b' is float32 in the checkpoint, float64 in the target",
            "different: 'c' is a string in the checkpoint, ndarray in the target")
        part = manager.restore(target={"b": np.ones(2), "c": "", "d": ...}, partial=True, cast=True)
        assert part["b"].dtype == np.float64 and part["c"] == "text" and part["d"].tolist() == [1]
        with pytest.raises(shardwright.InvalidArgumentError, match="missing"):
            manager.restore(target={"e": np.ones(1)}, partial=True)


def test_numbers_text_and_none_come_back_as_they_were_saved(root):
    saved = {"best": 0.37, "rate": 1e-3, "n": 2**53 + 1, "negative": -0.9, "text": "cosine", "none": None, "single": np.array(0.37, "f4"), "count": np.array(7)}
    with CheckpointManager(root) as manager:
        manager.save(1, saved)
        manager.wait()
        for target in ({"best": 0, "rate": 1, "n": 0.0, "negative": False, "text": None, "none": 5, "single": 0, "count": 0.0},
                       {"best": None, "rate": "", "n": True, "negative": 1, "text": 3, "none": "", "single": 1.0, "count": False}):
            found = manager.restore(target=target)
            same(found, {**saved, "single": float(np.float32(0.37)), "count": 7})
        with pytest.raises(shardwright.InvalidArgumentError, match="does not fit") as raised:
            manager.restore(target={**saved, "none": np.ones(1), "text": np.float32, "n": len, "single": None})
        assert raised.value.context == (
            "'n' is builtin_function_or_method in the target, which is no array and no value",
            "'text' is float32 in the target, which is no array and no value", "different: 'none' is a None in the checkpoint, ndarray in the target",
            "different: 'single' is an array in the checkpoint, NoneType in the target")


def test_what_the_target_leaves_open(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": {"x": np.ones(2), 3: [np.zeros(1), (1, "t")]}, "b": [np.ones(1)]})
        manager.wait()
        whole = manager.restore()
        for target in ({}, ..., {"a": {}, "b": []}, {"a": ..., "b": [...]}, {"a": {"x": np.ones(2), 3: ()}, "b": ()}):
            same(manager.restore(target=target), whole)
        same(manager.restore(target={"a": {3: [..., ()]}}, partial=True), {"a": {3: whole["a"][3]}})
        with pytest.raises(shardwright.InvalidArgumentError) as raised:
            manager.restore(target={"a": [], "b": {}, "c": {}})
        assert raised.value.context == ("different: 'a' is a dict in the checkpoint, list in the target",
                                        "different: 'b' is a sequence in the checkpoint, dict in the target", "missing in the checkpoint: 'c'")


def test_named_tuples_whose_class_is_not_there(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"state": collections.namedtuple("Elsewhere", "mu nu")(np.ones(1), 2)})
        manager.wait()
        found = manager.restore()["state"]
        assert type(found).__name__ == "Elsewhere" and found._fields == ("mu", "nu") and found.nu == 2 and isinstance(found, tuple)
        note = root / "1" / "state" / "shardwright.tree.json"
        note.write_text(note.read_text().replace('"nu"', '"xi"'))
        with pytest.raises(shardwright.CorruptError, match="does not fit its leaves"):
            manager.restore()


@pytest.mark.parametrize("target", ["state", "partly", "open", "none"])
def test_adam_of_pytorch_goes_on_bit_for_bit(root, target):
    torch = pytest.importorskip("torch")

    def training():
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 3)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            model(torch.full((2, 4), 1.0 + step)).square().sum().backward()
            optimizer.step()
    model, optimizer = training()
    train(model, optimizer, range(3))
    with CheckpointManager(root) as manager:
        manager.save(1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, range(3, 6))
    again, fresh = training()
    with CheckpointManager(root) as manager:
        if target == "none":
            state = manager.restore()
            assert list(state["optimizer"]["state"]) == [0, 1] and state["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
            return
        wanted = {"model": again.state_dict(), "optimizer": ... if target == "open" else fresh.state_dict()}
        state = manager.restore(target=wanted, partial=target == "partly")
    again.load_state_dict(state["model"])
    fresh.load_state_dict(state["optimizer"])
    train(again, fresh, range(3, 6))
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


@pytest.mark.parametrize("tree, said", [({"a": {"\udc80": 1}}, "surrogate"), ({"a": ["\udc80"]}, "surrogate"), ({"a": {(1, 2): 1}}, "'a'")])
def test_trees_that_cannot_be_saved_are_said_with_their_place(root, tree, said):
    with CheckpointManager(root) as manager:
        with pytest.raises(shardwright.Error) as raised:
            manager.save(1, tree)
        assert said in str(raised.value) and "a" in raised.value.tensor


def test_trees_that_do_not_end(root):
    ring, deep = {}, {}
    ring["again"] = ring
    inner = deep
    for _ in range(3000):
        inner["k"] = inner = {}
    with CheckpointManager(root) as manager:
        for endless, begins in ((ring, "again.again."), (deep, "k.k.")):
            with pytest.raises(shardwright.InvalidArgumentError, match="levels, or holds itself") as raised:
                manager.save(1, {"t": endless})
            assert raised.value.tensor.startswith("t." + begins)


def test_two_leaves_of_one_name_are_refused(root):
    with CheckpointManager(root) as manager:
        with pytest.raises(shardwright.InvalidArgumentError, match="one name"):
            manager.save(1, {"a": {"b": np.ones(1)}, "a.b": np.zeros(1)})
        with pytest.raises(shardwright.InvalidArgumentError, match="one name"):
            manager.save(1, {1: np.ones(1), "1": np.zeros(1)})
        assert manager.latest() is None


def test_torch(root):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    state = {"model": model.state_dict(), "half": torch.full((3,), 1.5, dtype=torch.bfloat16), "t": torch.arange(6).reshape(2, 3).T}
    with CheckpointManager(root) as manager:
        manager.save(1, state)
        expected = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            model.weight.zero_()
        manager.wait()
        restored = manager.restore(target=state)
    model.load_state_dict(restored["model"])
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name])
    assert restored["half"].dtype == torch.bfloat16 and restored["half"].tolist() == [1.5] * 3
    assert torch.equal(restored["t"], state["t"])


def test_jax_onto_a_mesh_and_back(root):
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    sharded = NamedSharding(mesh, PartitionSpec("x"))
    count = len(jax.devices())
    values = np.arange(8.0 * count, dtype="f4")
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": jax.device_put(values, sharded), "key": jax.random.key(3)})
        manager.wait()
        plain = manager.restore(target={"a": np.zeros_like(values), "key": jax.random.key(0)})
        assert plain["a"].tobytes() == values.tobytes()
        assert jax.random.bits(plain["key"]) == jax.random.bits(jax.random.key(3))
        with pytest.raises(shardwright.InvalidArgumentError, match="key of 'threefry2x32' in the checkpoint, key<rbg>"):
            manager.restore(target={"a": ..., "key": jax.random.key(0, impl="rbg")})
        manager.save(2, {"a": values})
        manager.wait()
        onto = manager.restore(2, target={"a": jax.ShapeDtypeStruct(values.shape, values.dtype, sharding=sharded)})["a"]
        assert onto.sharding == sharded and np.asarray(onto).tobytes() == values.tobytes()


@pytest.mark.parametrize("format", ["orbax", "safetensors"])
def test_integers_of_four_bits(root, format):
    """Stored a byte each, and what they were with the tree: Orbax restores its own int4, and so do we."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec
    spread = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    values = np.arange(16 * len(jax.devices()), dtype="i4") % 16 - 8
    tree = {"a": jax.device_put(values.astype("int4"), spread), "b": values.astype("int4"), "c": (values % 4 - 2).astype("int2")}
    with CheckpointManager(root, format=format) as manager:
        manager.save(1, tree)
        manager.wait()
        for found in (manager.restore(), manager.restore(target=tree)):
            assert all(found[name].dtype == tree[name].dtype and (np.asarray(found[name]) == np.asarray(tree[name])).all() for name in tree)
        assert found["a"].sharding == spread
        with pytest.raises(shardwright.InvalidArgumentError, match="'a' is int4 in the checkpoint, uint8"):
            manager.restore(target={"a": values.astype("u1"), "b": ..., "c": ...})
    if format == "orbax":
        ocp = pytest.importorskip("orbax.checkpoint")
        theirs = ocp.StandardCheckpointer().restore(root / "1" / "state")
        assert all(theirs[name].dtype == tree[name].dtype and (np.asarray(theirs[name]) == np.asarray(tree[name])).all() for name in tree)


def test_a_note_of_small_integers_is_read():
    """uint4 is not written, but zarr names it."""
    from shardwright.tree import noted_of
    leaves = [[["a"], "np.ndarray", False]]
    assert noted_of({"leaves": leaves, "types": {"a": "uint4"}}, {}).notes[0].small == "uint4"
    with pytest.raises(shardwright.CorruptError):
        noted_of({"leaves": leaves, "types": {"a": "float32"}}, {})
