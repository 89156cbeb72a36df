"""Relayout on JAX, in processes of their own: eight devices in one, and four in each of two."""
import pathlib
import socket
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from job import run  # noqa: E402

COMMON = """
import os, random, sys, tempfile
import ml_dtypes
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import shardwright as sw
import shardwright.jax as sj
from shardwright import _core
from shardwright.jax.distribution import bounds_of

def random_sharding(rng, shape, devices):
    devices = rng.sample(devices, len(devices))
    count = rng.choice([n for n in (1, 2, 4, 8) if n <= len(devices)] + [len(devices)])
    first = rng.choice([d for d in (1, 2, 4, 8) if count % d == 0])
    mesh = Mesh(np.array(devices[:count]).reshape(first, count // first), ("a", "b"))
    spec, sizes = [[] for _ in shape], dict(a=first, b=count // first)
    for axis in rng.sample("ab", 2):
        fits = [d for d, n in enumerate(shape) if n % (sizes[axis] * np.prod([sizes[x] for x in spec[d]], dtype=int)) == 0]
        if fits and rng.random() < .8:
            spec[rng.choice(fits)].append(axis)
    return NamedSharding(mesh, P(*[tuple(axes) or None for axes in spec]))

def draw(rng, devices):
    shape = tuple(rng.choice([0, 1, 2, 3, 8, 16, 24, 40]) for _ in range(rng.choice([0, 1, 2, 2, 3])))
    dtype = rng.choice(["float32", "int8", "bool", "float16", "int32", "complex64", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "int4", "uint2"])
    value = (np.arange(np.prod(shape, dtype=int)) * 7 % 123).reshape(shape).astype("f4").astype(getattr(ml_dtypes, dtype, dtype))
    value = value * dtype.type(1 + 2j) if (dtype := value.dtype).kind == "c" else value
    return value, random_sharding(rng, shape, devices), random_sharding(rng, shape, devices)

def must_move(value, before, after, who):
    # Element by element, from the boxes: bytes wanted by someone who does not hold them.
    masks = []
    for sharding in (before, after):
        masks.append({})
        for device, bounds in bounds_of(sharding, value.shape).items():
            mask = masks[-1].setdefault(who(device), np.zeros(value.shape, bool))
            mask[tuple(slice(a, b) for a, b in bounds)] = True
    return sum((mask & ~masks[0].get(key, np.zeros(value.shape, bool))).sum() for key, mask in masks[1].items()) * value.itemsize

def planned(value, before, after, count):
    def shards(sharding):
        return [([a for a, _ in bounds], [b - a for a, b in bounds], device.process_index, device.id)
                for device, bounds in bounds_of(sharding, value.shape).items()]
    return _core.plan_relayout([("t", value.itemsize, shards(before), shards(after))], count, 1 << 20)

def same(array, value):
    # Every box of this process, without gathering.
    return all(np.array_equal(np.asarray(shard.data), value[shard.index]) for shard in array.addressable_shards)
"""

ONE_PROCESS = COMMON + """
seed = int(os.environ["SEED"]); print("seed", seed); rng = random.Random(seed)
for number in range(30):
    value, before, after = draw(rng, jax.devices())
    array = jax.device_put(value, before)
    moved = sj.relayout(array, after)
    theirs = jax.device_put(array, after)
    assert moved.sharding == after or moved is array, (seed, number)
    right = same(theirs, value) or value.size == 0  # JAX gives some devices the whole of nothing
    assert same(moved, value) and right and moved.dtype == theirs.dtype and moved.shape == theirs.shape, (seed, number, value.shape, before, after)
    plan = planned(value, before, after, 1)
    assert plan["sent_bytes"] == 0 and plan["copied_bytes"] == must_move(value, before, after, lambda d: d), (seed, number)
    if before.is_equivalent_to(after, value.ndim):
        assert moved is array

# Trees, donated one after the other; values stay right though sources go.
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
tree = {n: jax.device_put(jnp.arange(64.0).reshape(8, 8) + n, NamedSharding(mesh, P("a", "b"))) for n in range(3)}
kept = dict(tree)
moved = sj.relayout(tree, P("b", "a"), donate=True)
assert all(np.array_equal(moved[n], np.arange(64.0).reshape(8, 8) + n) and kept[n].is_deleted() for n in range(3))

# One that stands there twice, as tied weights do, goes when all are done; what is laid out so already stays.
tied = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))
moved = sj.relayout([tied, tied], [P("b"), P(None, "a")], donate=True)
assert all(np.array_equal(one, np.arange(64.0).reshape(8, 8)) for one in moved) and tied.is_deleted()
moved = sj.relayout([moved[0], moved[0]], [P("b"), P("a")], donate=True)
assert all(np.array_equal(one, np.arange(64.0).reshape(8, 8)) for one in moved)

# Memory that JAX keeps apart.
apart = sj.relayout(moved[1], NamedSharding(mesh, P("b"), memory_kind="pinned_host"))
assert apart.sharding.memory_kind == "pinned_host" and np.array_equal(sj.relayout(apart, NamedSharding(mesh, P("a"))), np.arange(64.0).reshape(8, 8))

# Eager, traced, captured, indivisible.
wanted = NamedSharding(mesh, P("b", None))
assert sj.distribute_tensor(np.arange(8.0).reshape(8, 1), wanted).sharding == wanted
assert sj.distribute_variable([1, 2, 3, 4], NamedSharding(mesh, P("b"))).dtype == jnp.int32
array = sj.distribute_tensor(jnp.ones((8, 4)), wanted)
assert sj.distribute_tensor(array, wanted) is array and sj.relayout(array, wanted) is array
traced = jax.jit(lambda x: sj.distribute_tensor(x * 2, wanted) + 1)
assert "sharding_constraint" in traced.lower(jnp.ones((8, 4))).as_text() and traced(jnp.ones((8, 4))).sharding.is_equivalent_to(wanted, 2)
captured = jnp.arange(32.0).reshape(8, 4)
seen = []
def capture(x):
    seen.append(sj.relayout(captured, wanted))
    return x + seen[0]
assert np.array_equal(jax.jit(capture)(jnp.zeros((8, 4))), captured) and seen[0].sharding == wanted
gradient = jax.grad(lambda x: sj.distribute_tensor(x ** 2, wanted).sum())(jnp.ones((8, 4)))
assert np.array_equal(gradient, np.full((8, 4), 2))
for attempt in (lambda: sj.relayout(jnp.ones((7, 8)), wanted), lambda: jax.jit(lambda x: sj.distribute_tensor(x, wanted))(jnp.ones((7, 8))),
                lambda: sj.distribute_tensor(np.ones((7, 8)), wanted)):
    try:
        attempt()
        raise SystemExit("took an indivisible dimension")
    except sw.InvalidArgumentError as error:
        assert "dimension 0 of size 7 is not divisible by 'b' of size 4" in str(error), error

# Keras: the same names, its layouts, symbolic tensors.
os.environ["KERAS_BACKEND"] = "jax"
import keras, shardwright.keras as sk
kmesh = keras.distribution.DeviceMesh((2, 4), ("a", "b"), keras.distribution.list_devices())
layout = keras.distribution.TensorLayout(("b", None), kmesh)
placed = sk.distribute_tensor(np.ones((8, 4), "f4"), layout)
assert placed.sharding.is_equivalent_to(wanted, 2) and sk.distribute_tensor(placed, layout) is placed
symbolic = keras.Input((4,))
assert sk.distribute_tensor(symbolic, layout) is symbolic
assert sk.relayout(placed, keras.distribution.TensorLayout((None, "b"), kmesh)).addressable_shards[0].data.shape == (8, 1)
assert "sharding_constraint" in jax.jit(lambda x: sk.distribute_variable(x, layout)).lower(jnp.ones((8, 4))).as_text()
variable = keras.Variable(np.ones((8, 4), "f4"))
assert sk.relayout(variable, layout).sharding.is_equivalent_to(wanted, 2)
devices = keras.distribution.list_devices()
def over(axes, *mesh):
    return keras.distribution.TensorLayout(axes, keras.distribution.DeviceMesh(*mesh))
for bad, words in ((keras.distribution.TensorLayout(("b",), None), "no device mesh"), (None, "needs one with a mesh"),
                   (over(("a", "a"), (2, 4), ("a", "b"), devices), "layout has axis 'a' twice"), (over(("a",), (2, 4), ("a", "a"), devices), "mesh has axis 'a' twice"),
                   (over(("a",), (2,), ("a",), ["cpu:0", "cpu:0"]), "mesh has device 'cpu:0' twice")):
    try:
        sk.distribute_tensor(np.ones((8, 8)), bad)
        raise SystemExit(f"took it: {words}")
    except sw.InvalidArgumentError as error:
        assert words in str(error), error
"""

TWO_PROCESSES = COMMON + """
index, count = int(os.environ["INDEX"]), int(os.environ["COUNT"])
assert sw.get_process_count() == 1
jax.distributed.initialize(os.environ["ADDRESS"], count, index)
assert (sw.get_process_index(), sw.get_process_count()) == (index, count)
seed = int(os.environ["SEED"]); print("seed", seed); rng = random.Random(seed)

def made(value, sharding):
    return jax.make_array_from_callback(value.shape, sharding, lambda at: value[at], dtype=value.dtype)

total = 0
for number in range(15):
    value, before, after = draw(rng, jax.devices())
    array = made(value, before)
    moved = sj.relayout(array, after, memory="64KiB")
    assert same(moved, value) and (moved is array or moved.sharding == after), (seed, number, value.shape, before, after)
    plan = planned(value, before, after, count)
    assert plan["sent_bytes"] == must_move(value, before, after, lambda d: d.process_index), (seed, number)
    assert plan["sent_bytes"] + plan["copied_bytes"] == must_move(value, before, after, lambda d: d), (seed, number)
    total += plan["sent_bytes"]
assert total > 0

# Something that takes many messages, and several rounds.
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
value = np.arange(1024 * 1024, dtype="f4").reshape(1024, 1024)
assert same(sj.relayout(made(value, NamedSharding(mesh, P("a", "b"))), NamedSharding(mesh, P("b", "a")), memory="1MiB"), value)

# On the devices of one process only, in a tree with what is on all; each process has one of its own.
for whose in range(count):
    mine = Mesh(np.array([d for d in jax.devices() if d.process_index == whose]), ("a",))
    before, after = NamedSharding(mine, P("a", None)), NamedSharding(mine, P(None, "a"))
    local = jax.make_array_from_single_device_arrays((8, 8), before, [jax.device_put(np.ones((2, 8), "f4"), d) for d in mine.devices if whose == index], dtype=np.float32)
    tree = {"all": made(value, NamedSharding(mesh, P("a", "b"))), "one": local}
    moved = sj.relayout(tree, {"all": NamedSharding(mesh, P("b", "a")), "one": after})
    assert same(moved["all"], value) and moved["one"].sharding == after and len(moved["one"].addressable_shards) == (4 if whose == index else 0)
    assert same(moved["one"], np.ones((8, 8), "f4"))
    if whose == index:
        sj.relayout(local, after)  # nobody else is asked

# Saving: all together, what one would write.
at = os.environ["AT"]
tree = {"w": value, "layers": [np.ones((16, 24), "f2"), np.arange(8, dtype="i4")], "scalar": np.float32(3)}
specs = {"w": P("a", "b"), "layers": [P(None, ("b", "a")), P("b")], "scalar": P()}
arrays = jax.tree.map(lambda v, s: made(np.asarray(v), NamedSharding(mesh, s)), tree, specs)
summary = sj.save(at + "/together", arrays, max_shard_size=1_000_000_000)
assert summary.tensors == 4
if index == 0:
    sw.save(at + "/alone", {"w": tree["w"], "layers.0": tree["layers"][0], "layers.1": tree["layers"][1],
                           "scalar": np.asarray(tree["scalar"])}, max_shard_size=1_000_000_000)
try:
    sj.save(at + "/together", arrays)
    raise SystemExit("overwrote")
except sw.AlreadyExistsError:
    pass  # on both

# Loading: each process reads what its devices hold (the rows of one row of the mesh), and no byte of the others.
with sw.open(at + "/together") as opened:
    opening = opened.bytes_read
    again = sj.load(opened, {"w": NamedSharding(mesh, P("a", "b"))})["w"]
    assert same(again, value) and opened.bytes_read - opening == value.nbytes // count

os.environ["KERAS_BACKEND"] = "jax"
import keras, shardwright.keras as sk
kmesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), keras.distribution.list_devices())
layouts = keras.distribution.LayoutMap(kmesh)
layouts[".*kernel"] = ("batch", "model")
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False))
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(8)])
assert not model.layers[0].kernel.value.is_fully_addressable
sk.save_weights(model, at + "/k.weights.h5")
try:
    sk.save_model(model, at + "/k.keras")
    raise SystemExit("wrote an archive")
except sw.UnsupportedError:
    pass
with sw.open(at + "/k.weights.h5") as opened:
    assert len(list(opened)) == 4
    for layer, name in ((model.layers[0], "dense"), (model.layers[1], "dense_1")):
        for number, variable in enumerate((layer.kernel, layer.bias)):
            assert same(variable.value, opened[f"layers/{name}/vars/{number}"][...]), (name, number)
    before = [variable.value for variable in model.variables]
    for variable in model.variables:
        variable.assign(made(np.full(variable.shape, -1, "f4"), variable.value.sharding))
    sk.load_weights(model, at + "/k.weights.h5", progress=None)
    for variable, old in zip(model.variables, before):
        kept = {shard.device: np.asarray(shard.data) for shard in old.addressable_shards}
        assert variable.value.sharding == old.sharding and all(np.array_equal(s.data, kept[s.device]) for s in variable.value.addressable_shards)

# The callback: each process saves what it holds, and training goes on bit for bit; what is the best says process 0, whatever others find.
data = np.linspace(-1, 1, 8 * 16, dtype="f4").reshape(8, 16)
def trained(epochs, callback=None):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, name="in"), keras.layers.Dropout(0.5, name="drop"), keras.layers.Dense(8, name="out")])
    model.compile("adam", "mse")
    first = callback.resume(model) if callback else 0
    model.fit(data, data[:, :8], batch_size=8, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0, callbacks=[callback] if callback else [])
    return [np.asarray(shard.data) for v in [*model.trainable_variables, *model.optimizer.variables] for shard in v.value.addressable_shards]
def callback():
    return sk.CheckpointCallback(at + "/run", monitor="loss", save_best_only=True, max_to_keep=None, iterator_state=lambda: {"of": index})
sk.CheckpointCallback._is_better = lambda self, step, logs: index == 0
at_once = trained(2)
trained(1, callback())
assert all(map(np.array_equal, trained(2, callback()), at_once))
with sw.CheckpointManager(at + "/run", item="pytree") as manager:
    assert manager.latest() == 1 and manager.iterator_state() == {"of": index}

from job import speaks
from shardwright.ranks import current_ranks
speaks(current_ranks())
sw.leave_ranks()  # all of them: they begin anew
current_ranks().barrier()
assert current_ranks().count == count
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def seed() -> int:
    return int(np.random.SeedSequence().entropy % 2**31)


def test_eight_devices_of_one_process(tmp_path):
    run(1, ONE_PROCESS, SEED=seed(), JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8")


def test_four_devices_in_each_of_two_processes(tmp_path):
    run(2, TWO_PROCESSES, SEED=seed(), AT=tmp_path, ADDRESS=f"127.0.0.1:{free_port()}", JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=4")
    files = {where: {path.name: path.read_bytes() for path in (tmp_path / where).iterdir()} for where in ("alone", "together")}
    assert files["alone"] == files["together"]
