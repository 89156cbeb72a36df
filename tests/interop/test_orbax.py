"""Orbax checkpoints in both directions: Orbax's read by us, ours restored by each of its APIs."""
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import raw

ocp = pytest.importorskip("orbax.checkpoint")
import jax  # noqa: E402

NUMPY = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
         "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8", "BOOL": "?", "C64": "c8"}
SAMPLES = ["bfloat16", "default_ocdbt_zarr2", "indirect", "manager/10/state", "manager_single/ckpt_000005/default", "multiprocess_2x4/1/default",
           "no_ocdbt_zarr2", "no_ocdbt_zarr3", "sharded_2x4", "v1_checkpointables/params", "v1_pytree/state", "zarr3_ocdbt", "zarr3_subchunk"]


def arrays_of(shardwright, path, tmp_path, *args) -> dict[str, np.ndarray]:
    """Every tensor, by way of safetensors."""
    target = tmp_path / f"out{len(list(tmp_path.iterdir()))}.safetensors"
    shardwright.copy(path, target, *args)
    return {name: np.frombuffer(data, NUMPY[dtype]).reshape(shape) for name, (dtype, shape, data) in raw.read(target).items()}


def flat(tree, prefix=()) -> dict[str, np.ndarray]:
    """Leaves by Orbax's names."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        return {} if tree is None or isinstance(tree, str) else {".".join(prefix): np.asarray(tree)}
    return {name: leaf for key, value in items for name, leaf in flat(value, (*prefix, str(key))).items()}


def same(found: dict, expected: dict):
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        kind = array.dtype
        if kind in (ml_dtypes.int4, ml_dtypes.uint4):
            kind = np.dtype("i1")
        assert found[name].shape == array.shape, name
        assert found[name].astype(kind).tobytes() == array.astype(kind).tobytes(), name


def restore_plain(path):
    """As NumPy arrays, whatever the devices were."""
    handler = ocp.PyTreeCheckpointer()
    metadata = handler.metadata(path).item_metadata
    args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), dict(metadata.tree) if hasattr(metadata, "tree") else metadata)
    return handler.restore(path, restore_args=args)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_have_the_values_that_orbax_restores(shardwright, data, tmp_path, name):
    path = data / "orbax" / name
    same(arrays_of(shardwright, path, tmp_path), flat(restore_plain(path)))
    assert shardwright.lines("verify", path, "--full")[-1]["findings"] == 0


def fixtures() -> list[pathlib.Path]:
    """Checkpoints that the package carries to test itself with: of both APIs, whole and with files left out."""
    root = pathlib.Path(ocp.__file__).parent / "experimental/v1/_src/testing/compatibility/checkpoints"
    return [path for path in sorted(root.glob("v*_checkpoints/*_checkpoint/*/*")) if path.is_dir()]


# Those of which nothing is left to be read: the database, its root, or the item itself.
FIXTURE = {"a": list(range(8)), "b.c": [1, 2, 3]}
LOST = ("missing_pytree_data_dir_d", "missing_pytree_data_file_manifest.ocdbt", "deleted_checkpointable")


def test_fixtures_are_all_there():
    assert len(fixtures()) == 44 and sum(path.name in LOST for path in fixtures()) == 7


@pytest.mark.parametrize("path", fixtures(), ids=lambda path: "-".join(path.parts[-4:]))
def test_fixtures_of_orbax(shardwright, tmp_path, path):
    if path.name == "dummy_checkpointable_added":  # an item whose tree is no JSON: the others can be read by themselves
        assert "dummy/_METADATA" in shardwright.run("ls", path, code=4).stderr
        path = path / "state"
    if path.name in LOST:
        shardwright.run("ls", path, code=3)
    else:  # all are one tree
        found = arrays_of(shardwright, path, tmp_path)
        assert {name: array.tolist() for name, array in found.items()} == FIXTURE, found


def state(rng) -> dict:
    return {
        "params": {"dense": {"kernel": rng.standard_normal((16, 24)).astype("f4"), "bias": rng.standard_normal(24).astype(ml_dtypes.bfloat16)},
                   "layers": [rng.standard_normal((3, 2)).astype("f2"), rng.integers(0, 99, 700).astype("i4")]},
        "opt": ({"mu": np.zeros((400, 300), "f4")}, None, {}),
        "mask": np.array([True, False]), "fp8": np.arange(9).astype(ml_dtypes.float8_e4m3fn), "name": "x", "step": 7, "lr": 0.5,
    }


@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize("ocdbt", [False, True])
@pytest.mark.parametrize("compression", [False, True])
def test_what_orbax_saves_is_read(shardwright, tmp_path, rng, zarr3, ocdbt, compression):
    tree = state(rng)
    if not ocdbt:
        del tree["name"]
    saver = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3, use_compression=compression))
    saver.save(tmp_path / "c", tree)
    same(arrays_of(shardwright, tmp_path / "c", tmp_path), flat(tree))


OPTIONS = {"default": [], "zstd": ["compression=zstd"], "zarr3": ["zarr=3"], "zarr3_zstd": ["zarr=3", "compression=zstd"]}


@pytest.mark.parametrize("options", OPTIONS)
def test_trees_come_back_through_us(shardwright, tmp_path, rng, options):
    """Orbax, ours, Orbax: the same tree, empty nodes, sequences, strings and scalars with it."""
    tree = state(rng)
    ocp.PyTreeCheckpointer().save(tmp_path / "a", tree)
    shardwright.copy(tmp_path / "a", tmp_path / "b", "--to", "orbax", *[word for option in OPTIONS[options] for word in ("--option", option)])
    assert shardwright.lines("ocdbt", "check", tmp_path / "b")[-1]["findings"] == 0
    expected, found = ocp.PyTreeCheckpointer().restore(tmp_path / "a"), ocp.PyTreeCheckpointer().restore(tmp_path / "b")
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    assert found["name"] == "x" and found["step"] == 7 and type(found["step"]) is int and found["opt"][1] is None and found["opt"][2] == {}
    same(flat(found), flat(expected))
    same(arrays_of(shardwright, tmp_path / "b", tmp_path), flat(tree))
    assert shardwright.json("diff", tmp_path / "a", tmp_path / "b") == []


@pytest.mark.parametrize("options", OPTIONS)
def test_orbax_restores_what_was_safetensors(shardwright, tmp_path, rng, options):
    tensors = {name: (dtype, shape, rng.bytes(int(np.prod(shape)) * np.dtype(NUMPY[dtype]).itemsize)) for name, dtype, shape in
               [("params.dense.kernel", "F32", [64, 33]), ("params.dense.bias", "BF16", [33]), ("step", "I32", []), ("fp8", "F8_E5M2", [5, 2]), ("wide", "I16", [70000])]}
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax", *[word for option in OPTIONS[options] for word in ("--option", option)])
    expected = {name: np.frombuffer(data, NUMPY[dtype]).reshape(shape) for name, (dtype, shape, data) in tensors.items()}
    for checkpointer in (ocp.StandardCheckpointer(), ocp.PyTreeCheckpointer()):
        restored = checkpointer.restore(tmp_path / "c")
        assert set(restored) == {"params", "step", "fp8", "wide"}
        same(flat(restored), expected)
    # With a target on a device, and by v1.
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])), restored)
    same(flat(ocp.StandardCheckpointer().restore(tmp_path / "c", target)), expected)
    shardwright.copy(tmp_path / "c", tmp_path / "back.safetensors")
    assert raw.read(tmp_path / "back.safetensors") == tensors


def test_version_1_loads_ours(shardwright, tmp_path, rng):
    from orbax.checkpoint import v1
    raw.write(tmp_path / "a.safetensors", {"a.b": ("F32", [3, 2], rng.bytes(24)), "c": ("F32", [], rng.bytes(4))})
    for options in ([], ["--option", "api=v1"], ["--option", "api=v1", "--option", "compression=zstd"]):
        target = tmp_path / f"c{len(options)}"
        shardwright.copy(tmp_path / "a.safetensors", target, "--to", "orbax", *options)
        same(flat(v1.load_pytree(target)), {"a.b": np.frombuffer(raw.read(tmp_path / "a.safetensors")["a.b"][2], "f4").reshape(3, 2),
                                            "c": np.frombuffer(raw.read(tmp_path / "a.safetensors")["c"][2], "f4").reshape(())})


def test_named_item_restores_in_a_manager(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {"w": ("F32", [4], rng.bytes(16))})
    (tmp_path / "steps").mkdir()
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "steps" / "5", "--to", "orbax", "--option", "item=state")
    with ocp.CheckpointManager(tmp_path / "steps") as manager:
        assert manager.latest_step() == 5
        restored = manager.restore(5, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
    assert restored.state["w"].tobytes() == raw.read(tmp_path / "a.safetensors")["w"][2]


def test_tensorstore_opens_and_extends_ours(shardwright, tmp_path, rng):
    import tensorstore as ts
    raw.write(tmp_path / "a.safetensors", {f"t{i}": ("F32", [300], rng.bytes(1200)) for i in range(40)})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax")
    base = {"driver": "ocdbt", "base": f"file://{tmp_path / 'c'}/"}
    array = ts.open({"driver": "zarr", "kvstore": {**base, "path": "t7/"}}).result()
    assert array.read().result().tobytes() == raw.read(tmp_path / "a.safetensors")["t7"][2]
    array[0] = 5
    assert [row["generation"] for row in shardwright.lines("ocdbt", "dump", tmp_path / "c") if row["type"] == "version"] == [1, 2]
    assert arrays_of(shardwright, tmp_path / "c", tmp_path)["t7"][0] == 5


def test_part_reads_only_its_chunks(shardwright, tmp_path, rng):
    """2 MB of 40 are asked for: no more than them and the metadata is read."""
    tree = {"params": {"w": rng.standard_normal((500, 1000)).astype("f4")}, "opt": {f"m{i}": rng.standard_normal((1000, 1000)).astype("f4") for i in range(9)}}
    saver = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_compression=False))
    saver.save(tmp_path / "c", tree)
    for i, glob in enumerate(("params.*", "params/*")):
        done = shardwright.copy(tmp_path / "c", tmp_path / f"out{i}.safetensors", "--include", glob)
        assert done["tensors"] == 1 and 2e6 <= done["bytes_read"] < 2.2e6
        assert raw.read(tmp_path / f"out{i}.safetensors")["params.w"][2] == tree["params"]["w"].tobytes()
    assert shardwright.run("ls", "-q", tmp_path / "c", "params/*").stdout.split() == ["params.w"]
    shardwright.run("copy", tmp_path / "c", tmp_path / "out.safetensors", "--include", "param/*", code=3)


def test_equal_input_equal_bytes(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {f"t{i}": ("F32", [50_000 + i], rng.bytes(4 * (50_000 + i))) for i in range(12)})
    digests = set()
    for i, (threads, memory) in enumerate([(1, "16MiB"), (2, "256MiB"), (7, "20MiB")]):
        target = tmp_path / f"c{i}"
        shardwright.copy(tmp_path / "a.safetensors", target, "--to", "orbax", "--option", "compression=zstd", "--threads", threads, "--memory", memory)
        digests.add(tuple((path.relative_to(target).as_posix(), path.read_bytes()) for path in sorted(target.rglob("*")) if path.is_file()))
    assert len(digests) == 1


def test_plans_name_every_file(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {f"a.{i}": ("F32", [30], rng.bytes(120)) for i in range(3)})
    for options in ([], ["--option", "api=v1"], ["--option", "compression=zstd"]):
        words = (tmp_path / "a.safetensors", tmp_path / f"c{len(options)}{options[-1:]}", "--to", "orbax", *options)
        planned = {row["file"]: row["size"] for row in shardwright.copy(*words, "--dry-run")["files"]}
        done = shardwright.copy(*words)
        written = {path.relative_to(words[1]).as_posix(): path.stat().st_size for path in words[1].rglob("*") if path.is_file()}
        assert sorted(planned) == sorted(written)
        assert all(size is None or size == written[name] for name, size in planned.items()), planned
        assert done["bytes_written"] == sum(written.values())


def test_typed_keys_and_shardings_survive(shardwright, tmp_path):
    """Saved on eight devices and copied here, where there is one: read as it was by eight."""
    script = """
import sys, jax, numpy as np, orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P
what, path = sys.argv[1:]
mesh = jax.make_mesh((2, 4), ("x", "y"))
w = jax.device_put(np.arange(16 * 8, dtype="f4").reshape(16, 8), NamedSharding(mesh, P("x", "y")))
tree = {"w": w, "key": jax.random.key(3)}
saver = ocp.StandardCheckpointer()
if what == "save":
    saver.save(path, tree)
    saver.wait_until_finished()
else:
    found = saver.restore(path)
    assert found["w"].sharding.is_equivalent_to(w.sharding, 2), found["w"].sharding
    assert np.array_equal(np.asarray(found["w"]), np.asarray(w))
    assert found["key"].dtype == tree["key"].dtype and np.array_equal(jax.random.key_data(found["key"]), jax.random.key_data(tree["key"]))
"""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}

    def run(what, path):
        done = subprocess.run([sys.executable, "-c", script, what, str(path)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    run("save", tmp_path / "a")
    shardwright.copy(tmp_path / "a", tmp_path / "b", "--to", "orbax")
    run("restore", tmp_path / "b")
    found = arrays_of(shardwright, tmp_path / "b", tmp_path)
    assert np.array_equal(found["w"], np.arange(128, dtype="f4").reshape(16, 8)) and found["key"].tolist() == [0, 3]
    chunks = [row["key"] for row in shardwright.json("ocdbt", "ls", tmp_path / "b") if row["key"].startswith("w/") and not row["key"].endswith("zarray")]
    assert len(chunks) == 8


def test_ties_are_stored_once(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {"embed": ("F32", [5000], rng.bytes(20_000))}, {"format": "pt", "head": "embed"})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax")
    assert shardwright.json("info", tmp_path / "c")["ties"] == {"head": "embed"}
    assert sum(path.stat().st_size for path in (tmp_path / "c").rglob("*") if path.is_file()) < 25_000
    restored = ocp.StandardCheckpointer().restore(tmp_path / "c")
    assert restored["head"].tobytes() == restored["embed"].tobytes() == raw.read(tmp_path / "a.safetensors")["embed"][2]


def test_hash_covers_what_ocdbt_does_not(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {"w": ("F32", [5000], rng.bytes(20_000))})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax")
    shardwright.run("hash", "--write", tmp_path / "c")
    assert shardwright.lines("verify", "--full", tmp_path / "c")[-1]["findings"] == 0
    largest = max((tmp_path / "c" / "d").iterdir(), key=lambda path: path.stat().st_size)
    damaged = bytearray(largest.read_bytes())
    damaged[7000] ^= 1
    largest.write_bytes(damaged)
    assert shardwright.lines("ocdbt", "check", tmp_path / "c")[-1]["findings"] == 0
    assert any(line.get("tensor") == "w" for line in shardwright.lines("verify", "--full", tmp_path / "c", code=1))
    ocp.StandardCheckpointer().restore(tmp_path / "c")  # the manifest is no hindrance


def test_what_cannot_be_written_is_said(shardwright, tmp_path, rng):
    raw.write(tmp_path / "a.safetensors", {"w": ("F4", [4], rng.bytes(2))})
    shardwright.run("copy", tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax", code=6)
    raw.write(tmp_path / "b.safetensors", {"a": ("F32", [1], rng.bytes(4)), "a.b": ("F32", [1], rng.bytes(4))})
    done = shardwright.copy(tmp_path / "b.safetensors", tmp_path / "d", "--to", "orbax")
    assert any("beginning of another" in warning for warning in done["warnings"])
    assert set(ocp.StandardCheckpointer().restore(tmp_path / "d")) == {"a", "a.b"}
    shardwright.run("copy", tmp_path / "b.safetensors", tmp_path / "e", "--to", "orbax", "--option", "zarr=9", code=2)
    shardwright.run("copy", tmp_path / "b.safetensors", tmp_path / "e", "--option", "zarr=3", code=2)
