"""Loading onto eight devices (see test_processes.py, which runs this file with those)."""
import gc
import inspect
import os
import pathlib
import re

import array_spy
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import process_memory
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

import shardwright as sw
import shardwright.jax as sj
from shardwright.jax import loading

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")

GRID = np.array(jax.devices()[:8] if jax.device_count() >= 8 else [jax.devices()[0]] * 8)
MESH = Mesh(GRID.reshape(2, 4), ("a", "b")) if jax.device_count() >= 8 else None
TURNED = Mesh(GRID[::-1].reshape(4, 2), ("a", "b")) if jax.device_count() >= 8 else None
SPECS = [P(), P("a"), P(None, "b"), P("b", "a"), P(("a", "b"),), P(None, ("b", "a")), P("a", None)]


def shardings():
    return [NamedSharding(mesh, spec) for mesh in (MESH, TURNED) for spec in SPECS] + [SingleDeviceSharding(GRID[3])]


def same(array: jax.Array, values: np.ndarray) -> bool:
    return array.dtype == values.dtype and array.shape == values.shape and all(
        np.asarray(shard.data).tobytes() == values[shard.index].tobytes() for shard in array.addressable_shards)


@pytest.mark.parametrize("name,dtype", [("a.safetensors", dtype) for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, np.bool_)]
                         + [("a.weights.json", np.float32), ("a.weights.json", ml_dtypes.bfloat16)])
def test_values(tmp_path, name, dtype):
    values = {f"layers/x/vars/{i}": (np.arange(64 * 32).reshape(64, 32) % (i + 7)).astype(dtype) for i in range(len(shardings()))}
    sw.save(tmp_path / name, values, max_shard_size="8kB" if name.endswith("json") else None)
    wishes = dict(zip(values, shardings()))
    loaded = sj.load(tmp_path / name, wishes)
    assert list(loaded) == list(values)
    for key, array in loaded.items():
        assert array.sharding == wishes[key] and array.committed and same(array, values[key]), (key, wishes[key])


def test_three_ways_to_say_where(tmp_path):
    values = {"w": np.arange(32.0, dtype="f4").reshape(8, 4), "b": np.arange(8.0, dtype="f4"), "scale": np.float32(3), "none": np.zeros((0, 8), "f4")}
    sw.save(tmp_path / "a.safetensors", values)
    rows, whole = NamedSharding(MESH, P("b")), NamedSharding(MESH, P())
    for wishes, names in (({"b": rows, "w": rows}, ["b", "w"]), (whole, list(values)), (lambda t: rows if t.ndim and t.size else whole, list(values)),
                          (lambda t: rows if t.name == "b" else None, ["b"])):
        loaded = sj.load(tmp_path / "a.safetensors", wishes)
        assert sorted(loaded) == sorted(names) and all(same(loaded[name], np.asarray(values[name])) for name in names)
    with sw.open(tmp_path / "a.safetensors") as checkpoint:
        assert same(sj.load(checkpoint, {"none": NamedSharding(MESH, P(None, "b"))})["none"], values["none"])
    target = jax.ShapeDtypeStruct((8, 4), jnp.bfloat16, sharding=rows)
    assert same(sj.load(tmp_path / "a.safetensors", {"w": target})["w"], values["w"].astype(ml_dtypes.bfloat16))


def test_devices_hold_the_memory_that_was_read_into(tmp_path, monkeypatch):
    """Nothing is copied: every box begins where the engine allocated it, and replicas are one."""
    sw.save(tmp_path / "a.safetensors", {"w": np.ones((64, 64), "f4"), "v": np.ones((64, 64), "f4")})
    made = []

    class Arena(loading.Arena):
        def empty(self, shape, dtype):
            made.append(super().empty(shape, dtype))
            return made[-1]
    monkeypatch.setattr(loading, "Arena", Arena)
    loaded = sj.load(tmp_path / "a.safetensors", NamedSharding(MESH, P(None, "b")))
    addresses = {array.ctypes.data for array in made}
    assert len(addresses) == 8
    for array in loaded.values():
        held = {shard.device: shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}
        assert set(held.values()) <= addresses and len(set(held.values())) == 4


def test_what_the_page_on_layouts_shows_runs(tmp_path, monkeypatch):
    page = (pathlib.Path(__file__).parents[3] / "docs" / "layouts.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "shardwright.jax." in block]
    assert len(blocks) == 2
    values = np.arange(512_000, dtype="f4").reshape(1000, 512)
    sw.save(tmp_path / "llama", {"embed.weight": values, "norm.weight": np.ones(512, "f4")}, max_shard_size="1MB")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(block, names)
    assert names["array"].sharding.spec == P(None, "model") and same(names["array"], values.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("spec", [P("a"), P(None, "b"), P("b", "a"), P(("a", "b"))])
def test_never_whole(tmp_path, spec):
    values = {name: np.arange(2**20, dtype="f4").reshape(1024, 1024) for name in "wvu"}
    sw.save(tmp_path / "a.safetensors", values)
    del values
    sharding = NamedSharding(MESH, spec)
    shard_bytes = 4 * int(np.prod(sharding.shard_shape((1024, 1024))))
    checkpoint = sw.open(tmp_path / "a.safetensors")
    with array_spy.arrays_of_more_than(shard_bytes) as found:
        loaded = sj.load(checkpoint, sharding)
    assert found == [] and array_spy.gathered(loaded.values()) == []
    assert checkpoint.bytes_read <= 1.02 * checkpoint.nbytes
    with array_spy.arrays_of_more_than(shard_bytes - 1) as found:
        sj.load(checkpoint, sharding)
    assert found, "the spy sees nothing"


def test_tied_names_are_read_once(tmp_path):
    sw.save(tmp_path / "a.safetensors.index.json", {"w": np.arange(64.0, dtype="f4").reshape(8, 8)})
    sw.save(tmp_path / "b.weights.json", {"x/vars/0": np.arange(64.0, dtype="f4").reshape(8, 8)}, ties={"y/vars/0": "x/vars/0"})
    checkpoint = sw.open(tmp_path / "b.weights.json")
    before = checkpoint.bytes_read
    loaded = sj.load(checkpoint, NamedSharding(MESH, P("b")))
    assert checkpoint.bytes_read - before == 256
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    stepped = step(loaded["x/vars/0"])
    assert float(stepped[0, 0]) == 1 and float(loaded["y/vars/0"][0, 0]) == 0, "a donated array took its twin along"


def test_training_steps_leave_replicas_alone(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((256, 256), "f4")})
    loaded = sj.load(tmp_path / "a.safetensors", NamedSharding(MESH, P("a")))
    value = loaded["w"]
    step = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    for _ in range(3):
        value = step(value)
    assert all((np.asarray(shard.data) == 7).all() for shard in value.addressable_shards)


def test_everything_that_does_not_fit_is_said_at_once(tmp_path):
    sw.save(tmp_path / "a.safetensors", {"w": np.zeros((10, 6), "f4"), "n": np.zeros(4, "i8"), "ok": np.zeros(8, "f4"), "s": np.float32(1)})
    checkpoint = sw.open(tmp_path / "a.safetensors")
    before = checkpoint.bytes_read
    rows = NamedSharding(MESH, P("b"))
    with pytest.raises(sw.InvalidArgumentError) as raised:
        sj.load(checkpoint, rows)
    text = str(raised.value)
    assert "'w': dimension 0 of size 10 is not divisible by 'b' of size 4" in text and "3 tensors" in text
    assert "'s': the layout has 1 dimensions, the tensor 0" in text and "jax_enable_x64" in text and "'ok'" not in text
    for wish, line in ((NamedSharding(MESH, P(None, ("a", "b"))), "'a' x 'b' of size 8"), (P("b"), "PartitionSpec needs a mesh"),
                       (jax.ShapeDtypeStruct((6, 10), "float32", sharding=rows), "[10, 6] in the checkpoint, [6, 10] wanted"),
                       (jax.ShapeDtypeStruct((10, 6), "int32", sharding=NamedSharding(MESH, P())), "float32 in the checkpoint, int32 wanted")):
        with pytest.raises(sw.InvalidArgumentError) as raised:
            sj.load(checkpoint, {"w": wish})
        assert line in str(raised.value)
    with pytest.raises(sw.TensorNotFoundError) as raised:
        sj.load(checkpoint, {"oks": rows, "ww": rows})
    assert "'ok'" in raised.value.hint
    assert checkpoint.bytes_read == before


def test_devices_that_copy_get_boxes_in_turns(tmp_path, monkeypatch):
    """As for an accelerator, on the CPU."""
    values = {name: np.arange(64 * 64, dtype="f4").reshape(64, 64) + i for i, name in enumerate("wvu")}
    sw.save(tmp_path / "a.safetensors", values)
    original = loading._Target.__init__

    def elsewhere(self, want, pieces):
        original(self, want, pieces)
        self.taken_over = False
    monkeypatch.setattr(loading._Target, "__init__", elsewhere)
    monkeypatch.setattr(loading, "TURN_BYTES", 5000)
    for spec in SPECS:
        loaded = sj.load(tmp_path / "a.safetensors", NamedSharding(MESH, spec))
        assert all(same(loaded[name], values[name]) for name in values)


def test_later_loads_leave_earlier_arrays_alone(tmp_path):
    """No memory of the engine is JAX's and used again: the first arrays stay what they are, though those between were given back."""
    for number in range(3):
        sw.save(tmp_path / f"{number}.safetensors", {"w": np.full((256, 1024), number, "f4"), "b": np.full(64, number, "f4")})
    loaded = []
    for number in (0, 1, 2):
        loaded.append(sj.load(tmp_path / f"{number}.safetensors", lambda t: NamedSharding(MESH, P(*[None] * (t.ndim - 1), "b"))))
        sj.load(tmp_path / "2.safetensors", NamedSharding(MESH, P("a")))
    pointers = [shard.data.unsafe_buffer_pointer() for arrays in loaded for array in arrays.values() for shard in array.addressable_shards]
    assert len(set(pointers)) == 3 * 2 * 4, "four distinct boxes of each array"
    for number, arrays in enumerate(loaded):
        assert all((np.asarray(shard.data) == number).all() for array in arrays.values() for shard in array.addressable_shards), number


def test_everything_public_has_a_contract():
    assert [name for name in sj.__all__ if inspect.isfunction(getattr(sj, name)) and not (getattr(sj, name).__doc__ or "").strip()] == []


def test_fifty_loads_leave_memory_flat(tmp_path):
    sw.save(tmp_path / "a.safetensors", {f"w{i}": np.ones((512, 512), "f4") for i in range(4)} | {"b": np.ones(64, "f4")})
    held = []
    for i in range(50):
        sj.load(tmp_path / "a.safetensors", lambda t: NamedSharding(MESH, P(*[None] * (t.ndim - 1), "b")))
        if i % 10 == 9:
            gc.collect()
            held.append(process_memory.anonymous_bytes(os.getpid()))
    assert held[-1] <= held[0] + (2 << 20), held


@pytest.mark.parametrize("format", ["orbax", "safetensors", "keras-h5", "keras-sharded"])
def test_a_step_goes_anywhere(tmp_path, format):
    """Saved from eight devices; onto all, three, one and none of them, whole and in part, with what stands beside the weights."""
    values = np.arange(24 * 8, dtype="f4").reshape(24, 8)
    key = jax.random.split(jax.random.key(7, impl="rbg"), 3)
    tree = {"layers": [{"w": jax.device_put(values, NamedSharding(MESH, P("a", "b")))}, (jax.device_put(values.astype(ml_dtypes.bfloat16), NamedSharding(MESH, P("b"))),)],
            "key": key, "epoch": 3, "rate": 0.5, "none": None, "name": "run"}
    with sw.CheckpointManager(tmp_path / "run", format=format) as manager:
        manager.save(1, tree, metrics={"loss": 0.5}, metadata={"arguments": {"rate": 0.5}}, iterator_state={"at": 7})
    three = Mesh(GRID[:3], ("x",))
    with sw.CheckpointManager(tmp_path / "run", format=format) as manager:
        for sharding in (NamedSharding(MESH, P("b", "a")), NamedSharding(TURNED, P(None, "b")), NamedSharding(three, P("x")), NamedSharding(three, P()), SingleDeviceSharding(GRID[5])):
            wanted = jax.ShapeDtypeStruct((24, 8), jnp.float32, sharding=sharding)
            found = manager.restore(target={**tree, "layers": [{"w": wanted}, (jax.ShapeDtypeStruct((24, 8), jnp.bfloat16, sharding=sharding),)]}, verify=True)
            w, half = found["layers"][0]["w"], found["layers"][1][0]
            assert w.sharding == half.sharding == sharding and same(w, values) and same(half, values.astype(ml_dtypes.bfloat16))
            assert (jax.random.bits(found["key"][2]) == jax.random.bits(key[2])).all() and found["key"].dtype == key.dtype
            assert (found["epoch"], found["rate"], found["none"], found["name"]) == (3, 0.5, None, "run")
            part = manager.restore(target={"layers": [..., (wanted,)]}, partial=True, cast=True)["layers"]
            assert same(part[1][0], values) and np.array_equal(part[0]["w"], values)
        plain = manager.restore()
        assert np.array_equal(plain["layers"][0]["w"], values) and plain["layers"][1][0].dtype == ml_dtypes.bfloat16 and plain["key"].dtype == key.dtype
        with pytest.raises(sw.InvalidArgumentError) as raised:
            manager.restore(target={"layers": [{"w": wanted, "v": wanted}, (wanted,)], "epoch": 0, "rate": 0, "none": None, "name": ""})
        assert raised.value.context == ("missing in the checkpoint: 'layers.0.v'", "unexpected in the checkpoint: 'key'",
                                        "different: 'layers.1.0' is bfloat16 in the checkpoint, float32 in the target")
        assert manager.metrics() == {"loss": 0.5} and manager.metadata() == {"arguments": {"rate": 0.5}} and manager.iterator_state() == {"at": 7}
