"""Orbax checkpoints on devices: saved by Orbax on eight, read on eight, three, one and none, without those that saved, and by two processes that read
what is theirs. Saved by us from eight devices and from two processes, restored by Orbax as they were."""
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from job import run  # noqa: E402

COMMON = """
import os, sys, warnings
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
import shardwright as sw
import shardwright.jax as sj
warnings.simplefilter("error", UserWarning)
at = os.environ["AT"]
# Chunks of 24 x 720 floats each, more than the gap over which reads are merged; "bf16" is cut by columns, "whole" and "step" are everywhere.
WHOLE = {"w": np.arange(192 * 720, dtype="f4").reshape(192, 720), "bf16": (np.arange(48 * 48) % 97).reshape(48, 48).astype(jnp.bfloat16),
         "whole": np.arange(3000, dtype="i4"), "step": np.int32(7)}
SPECS = {"w": P(("x", "y")), "bf16": P(None, "y"), "whole": P(), "step": P()}

def mesh(devices):
    return Mesh(np.array(devices).reshape(2, -1), ("x", "y"))

def laid_out(devices):
    return {name: NamedSharding(mesh(devices), SPECS[name]) for name in WHOLE}

def same(arrays, names=WHOLE):
    assert sorted(arrays) == sorted(names)
    for name, array in arrays.items():
        for shard in array.addressable_shards:
            assert np.array_equal(np.asarray(shard.data), WHOLE[name][shard.index] if WHOLE[name].ndim else WHOLE[name]), name
"""


def on_devices(count: int, code: str, at) -> str:
    """The output of `code` where there are so many devices."""
    return run(1, COMMON + code, AT=at, XLA_FLAGS=f"--xla_force_host_platform_device_count={count}", JAX_PLATFORMS="cpu")[0]


SAVE = """
import orbax.checkpoint as ocp
handler = ocp.PyTreeCheckpointHandler(use_zarr3=ZARR3, use_compression=COMPRESSED)
arrays = {name: jax.make_array_from_callback(value.shape, sharding, lambda i, v=value: v[i]) if value.ndim else jax.device_put(value, sharding)
          for (name, value), sharding in zip(WHOLE.items(), laid_out(jax.devices()).values())}
ocp.Checkpointer(handler).save(at + "/c", arrays)
"""


@pytest.fixture(scope="module", params=["raw", "zarr3"])
def saved(request, tmp_path_factory):
    """What Orbax wrote on eight devices: the folder, and whether chunks are encoded."""
    folder = tmp_path_factory.mktemp(request.param)
    encoded = request.param != "raw"
    on_devices(8, f"ZARR3, COMPRESSED = {request.param == 'zarr3'}, {encoded}\n" + SAVE, folder)
    return folder, encoded


# All devices of this process, and one of them, under each of three layouts: by rows, by columns, whole.
READ = """
for devices in (jax.devices(), jax.devices()[-1:]):
    line = Mesh(np.array(devices), ("x",))
    for spec in (P("x"), P(None, "x"), P()):
        checkpoint = sw.open(at + "/c")
        names = [t.name for t in checkpoint.values() if t.ndim == 2 or spec == P()]
        before = checkpoint.bytes_read
        loaded = sj.load(checkpoint, {name: NamedSharding(line, spec) for name in names})
        same(loaded, names)
        print(checkpoint.bytes_read - before, sum(WHOLE[name].nbytes for name in names))
        assert all(array.sharding.device_set == set(devices) for array in loaded.values())
"""


@pytest.mark.parametrize("devices", [8, 3])
def test_read_on_other_devices(saved, devices):
    folder, encoded = saved
    for line in on_devices(devices, READ, folder).splitlines():
        read, needed = map(int, line.split())
        # Encoded chunks are smaller than their values; padding between them is at most a twentieth.
        assert read <= 1.05 * needed if not encoded else read < needed, (read, needed)


def test_read_as_plain_arrays(saved):
    """Where there is no JAX, and without a word."""
    folder, _ = saved
    code = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np, shardwright as sw
loaded = sw.open(sys.argv[1]).load()
assert "jax" not in sys.modules and "orbax" not in sys.modules and "tensorstore" not in sys.modules
assert np.array_equal(loaded["w"], np.arange(192 * 720, dtype="f4").reshape(192, 720)) and loaded["step"] == 7 and loaded["bf16"].shape == (48, 48)
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder / "c")], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0 and done.stderr == "", done.stderr[-2000:]


def test_saved_unsharded_read_onto_a_mesh(tmp_path):
    on_devices(1, """
import orbax.checkpoint as ocp
with ocp.StandardCheckpointer() as saver:
    saver.save(at + "/c", {name: jnp.asarray(value) for name, value in WHOLE.items()})
""", tmp_path)
    on_devices(8, 'same(sj.load(at + "/c", laid_out(jax.devices())))', tmp_path)


# ---- two processes of four devices each

TWO = COMMON + """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
index, count = int(os.environ["INDEX"]), int(os.environ["COUNT"])
jax.distributed.initialize(os.environ["ADDRESS"], count, index)
"""


def on_two_processes(code: str, at) -> list[str]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    return run(2, TWO + code, AT=at, ADDRESS=address, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")


def test_two_processes_read_what_is_theirs(saved):
    """The rows of `w` are split over all devices: each process reads half of its chunks, and no byte of the other half."""
    folder, encoded = saved
    halves = [int(line) for line in on_two_processes("""
checkpoint = sw.open(at + "/c")
before = checkpoint.bytes_read
same(sj.load(checkpoint, {"w": laid_out(jax.devices())["w"]}), ["w"])
print(checkpoint.bytes_read - before)
""", folder)]
    half = np.zeros((96, 720), "f4").nbytes
    assert all(0 < read <= 1.02 * half for read in halves) and (encoded or halves == [half, half]), halves


def test_two_processes_save_one_checkpoint(tmp_path):
    """What they write together is restored by Orbax on one device, and on eight as it was, without a target."""
    on_two_processes("""
arrays = {name: jax.make_array_from_callback(value.shape, sharding, lambda i, v=value: v[i])
          for (name, value), sharding in zip(WHOLE.items(), laid_out(jax.devices()).values()) if value.ndim}
summary = sj.save(at + "/c", arrays, format="orbax", options={"compression": "zstd"})
assert {name.split("/")[0] for name, _ in summary.files if name.startswith("ocdbt.")} == {"ocdbt.process_0", "ocdbt.process_1"}, summary.files
""", tmp_path)
    restore = """
import orbax.checkpoint as ocp
one = SingleDeviceSharding(jax.devices()[0])
target = {n: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=one) for n, v in WHOLE.items() if v.ndim}
same(ocp.StandardCheckpointer().restore(at + "/c", target), list(target))
same(sj.load(at + "/c", one), list(target))
"""
    on_devices(1, restore, tmp_path)


def test_shardings_are_those_of_the_arrays(tmp_path, shardwright):
    """Eight devices, saved by us: Orbax restores the arrays as they lay, without a target; `map` shows where they were; a layout file does the same."""
    on_devices(8, """
import orbax.checkpoint as ocp
arrays = {name: jax.make_array_from_callback(value.shape, sharding, lambda i, v=value: v[i])
          for (name, value), sharding in zip(WHOLE.items(), laid_out(jax.devices()).values()) if value.ndim}
tree = {"layers": [arrays["w"], (arrays["bf16"],)], "whole": arrays["whole"], "step": 7, "rate": 0.5, "name": "x", "none": None, "empty": {}, "key": jax.random.key(3)}
for options in ({}, {"compression": "zstd"}, {"zarr": "3"}):
    path = at + "/c" + str(len(str(options)))
    sj.save(path, tree, format="orbax", options=options)
    found = ocp.StandardCheckpointer().restore(path)
    for got, given in ((found["layers"][0], arrays["w"]), (found["layers"][1][0], arrays["bf16"]), (found["whole"], arrays["whole"])):
        assert got.sharding.is_equivalent_to(given.sharding, given.ndim), got.sharding
        assert np.array_equal(np.asarray(got), np.asarray(given))
    assert (found["step"], found["rate"], found["name"], found["none"], found["empty"]) == (7, 0.5, "x", None, {})
    assert found["key"].dtype == tree["key"].dtype and np.array_equal(jax.random.key_data(found["key"]), jax.random.key_data(tree["key"]))
""", tmp_path)
    mapped = shardwright.json("map", tmp_path / "c2")
    assert mapped["match"] == "exact" and mapped["mesh"]["axis_names"] == ["x", "y"] and mapped["mesh"]["shape"] == [2, 4]
    specs = {row["name"]: row["partition_spec"] for row in mapped["tensors"]}
    assert specs["layers.0"] == [["x", "y"], None] and specs["layers.1.0"] == [None, "y"] and specs["whole"] == [None]
    (tmp_path / "rows.json").write_text('{"mesh": {"axis_names": ["x"], "shape": [8]}, "match": "exact", "rules": {"layers.0": ["x", null]}}')
    for path in ("c2", "c23"):  # one device's part: its one chunk of eight, whose values are 69,120 bytes, and metadata
        done = shardwright.copy(tmp_path / path, tmp_path / f"{path}.safetensors", "--include", "layers.0", "--layout", tmp_path / "rows.json", "--rank", 5)
        assert 5_000 < done["bytes_read"] < 85_000 and done["reread"] == 1, done
    sixteenth = ("--include", "layers.0", "--mesh", "x=16", "--layout", tmp_path / "rows.json", "--rank", 5, "--dry-run")
    assert shardwright.copy(tmp_path / "c23", tmp_path / "half.safetensors", *sixteenth)["reread"] == 2  # half of a chunk; raw, 1
    assert shardwright.copy(tmp_path / "c2", tmp_path / "half.safetensors", *sixteenth)["reread"] == 1
    (tmp_path / "layout.json").write_text('{"mesh": {"axis_names": ["x", "y"], "shape": [2, 4]}, "match": "exact", "rules": {"w": [["x", "y"]], "v": [null, "y"]}}')
    on_devices(1, 'sw.save(at + "/plain.safetensors", {"w": WHOLE["w"], "v": WHOLE["w"]})', tmp_path)
    shardwright.copy(tmp_path / "plain.safetensors", tmp_path / "laid", "--to", "orbax", "--layout", tmp_path / "layout.json")
    on_devices(8, """
import orbax.checkpoint as ocp
found = ocp.StandardCheckpointer().restore(at + "/laid")
for name, spec in (("w", P(("x", "y"))), ("v", P(None, "y"))):
    assert found[name].sharding.is_equivalent_to(NamedSharding(mesh(jax.devices()), spec), 2)
    assert np.array_equal(np.asarray(found[name]), WHOLE["w"])
""", tmp_path)
