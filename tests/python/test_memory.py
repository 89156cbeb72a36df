"""The memory promise from Python: beside the arrays that are there, saving takes its budget and 64 MiB at most; loading the result too.

RssAnon is sampled from outside; half a GiB is moved with a budget of 16 MiB, so that a single copy of it would show.
"""
import os
import sys

import process_memory
import pytest

pytestmark = pytest.mark.xdist_group("memory")
MIB = 2**20
ALLOWED = (16 + 64) * MIB

PRELUDE = """
import sys, numpy as np, ml_dtypes, shardwright as sw
folder = sys.argv[1]
N, MIB = 2**27, 2**20
def filled(dtype="f4", shape=(2**14, 2**13)):
    array = np.empty(shape, dtype)
    array.view("u1").reshape(-1)[:] = 1  # every page is there
    return array
def ready():
    print("ready", flush=True)
    sys.stdin.readline()
def save(value, **more):
    ready()
    sw.save(folder + "/x.safetensors", {"w": value}, memory="16MiB", **more)
"""

SAVED = {
    "contiguous": "a = filled(); save(a)",
    "transposed": "a = filled(); save(a.T)",
    "reversed big-endian": "a = filled('>f4'); save(a[::-1, ::-1])",
    "every second row": "a = filled(); save(a[::2])",
    "cast": "a = filled(); save(a, dtype='bf16')",
    "torch bfloat16": "import torch; t = torch.ones(2**14, 2**14, dtype=torch.bfloat16); save(t.T)",
    "jax": "import jax, jax.numpy as jnp; j = jax.block_until_ready(jnp.ones((2**14, 2**13))); save(j)",
    "boxes": "save(sw.Producer((2**14, 2**13), 'float32', box=lambda a, b: np.broadcast_to(np.float32(1), [q - p for p, q in zip(a, b)])))",
    "lazy": "sw.save(folder + '/a.safetensors', {'w': np.broadcast_to(np.float32(1), (2**14, 2**13))}); c = sw.open(folder + '/a.safetensors'); save(c['w'])",
}


def growth(folder, body: str, **environment: str) -> int:
    """What the script takes from its ready() to its end, beyond what there was."""
    return process_memory.growth([sys.executable, "-c", PRELUDE + body, str(folder)], {**os.environ, **environment})


@pytest.mark.parametrize("kind", SAVED)
def test_saving_takes_the_budget_alone(tmp_path, kind):
    if kind.split()[0] in ("torch", "jax"):
        pytest.importorskip(kind.split()[0])
    grown = growth(tmp_path, SAVED[kind])
    assert (tmp_path / "x.safetensors").stat().st_size >= 2**28
    assert grown <= ALLOWED, f"{grown / MIB:.0f} MiB"


@pytest.mark.parametrize("spec", ["P('x')", "P(None, 'x')"])
def test_loading_onto_devices_takes_the_shards_and_the_budget(tmp_path, spec):
    pytest.importorskip("jax")
    grown = growth(tmp_path, f"""
import jax, shardwright.jax as sj
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
sw.save(folder + "/w.safetensors", {{"w": np.broadcast_to(np.float32(1), (2**14, 2**13))}})
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), {spec})
assert sharding.num_devices == 8
ready()
loaded = jax.block_until_ready(sj.load(folder + "/w.safetensors", sharding, memory="16MiB"))
""", XLA_FLAGS="--xla_force_host_platform_device_count=8", JAX_PLATFORMS="cpu")
    assert 2**29 <= grown <= 2**29 + ALLOWED, f"{grown / MIB:.0f} MiB"


def test_a_copied_array_would_show(tmp_path):
    assert growth(tmp_path, "a = filled(); ready(); b = a.copy()") > 2**28


def test_producers_hold_one_tensor(tmp_path):
    grown = growth(tmp_path, "ready(); sw.save(folder + '/m', [(f't{i}', (2**24,), 'float32', lambda: np.ones(2**24, 'f4')) for i in range(8)],"
                             " max_shard_size='200MB', memory='16MiB')")
    assert 2**26 <= grown <= 2**26 + ALLOWED, f"{grown / MIB:.0f} MiB"


STORED = "sw.save(folder + '/a.safetensors', {'w': np.broadcast_to(np.float32(1), (2**14, 2**13))}); c = sw.open(folder + '/a.safetensors');"


@pytest.mark.parametrize("body,result", [
    ("ready(); x = c.load(memory='16MiB')", 2**29),
    ("out = filled(); ready(); c.load(out={'w': out}, memory='16MiB')", 0),
    ("out = filled().T; out = filled('f4', (2**13, 2**14)).T; ready(); c.load(out={'w': out}, memory='16MiB')", 0),
    ("ready(); x = c['w'][::1000]", 0), ("ready(); x = c['w'][:, ::1000]", 0), ("ready(); x = c['w'][..., -1]", 0),
    ("ready(); [row.sum() for row in c['w']]", 0),
], ids=["load", "into", "into transposed", "rows", "columns", "a column", "row by row"])
def test_loading_takes_the_result_and_the_budget(tmp_path, body, result):
    budget = ALLOWED if "memory" in body else ALLOWED + 240 * MIB  # slices have the default budget
    grown = growth(tmp_path, STORED + body)
    assert grown <= result + budget, f"{grown / MIB:.0f} MiB"


DEVICES = """
import jax, shardwright.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("x",))
jax.block_until_ready(jax.device_put(np.zeros(8), NamedSharding(mesh, P("x"))))
"""


@pytest.mark.parametrize("spec", ["P('x')", "P(None, 'x')"], ids=["rows", "columns"])
def test_loading_onto_devices_takes_the_shards_and_the_budget(tmp_path, spec):
    pytest.importorskip("jax")
    body = STORED + DEVICES + f"ready(); x = shardwright.jax.load(c, NamedSharding(mesh, {spec}), memory='16MiB')"
    grown = growth(tmp_path, body, XLA_FLAGS="--xla_force_host_platform_device_count=8", JAX_PLATFORMS="cpu")
    assert 2**29 <= grown <= 2**29 + ALLOWED, f"{grown / MIB:.0f} MiB"
