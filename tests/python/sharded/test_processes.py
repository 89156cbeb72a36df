"""The tests that need eight devices, and those that need several processes."""
import os
import pathlib
import subprocess
import sys

import pytest

import shardwright as sw

HERE = pathlib.Path(__file__).parent
DEVICES = "--xla_force_host_platform_device_count=8"

if DEVICES in os.environ.get("XLA_FLAGS", ""):
    pytest.skip("already in one of them", allow_module_level=True)


def test_jax_on_eight_devices():
    pytest.importorskip("jax")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not alone", str(HERE / "test_jax.py")]
    environment = {**os.environ, "XLA_FLAGS": DEVICES, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600, cwd=HERE.parents[2])
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]


GLOO = """
import sys, torch, torch.distributed as dist, shardwright.torch as st, shardwright as sw
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
folder, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
whole = sw.open(folder + "/a.safetensors").load()
for placed in ([Shard(0)], [Shard(1)], [Replicate()]):
    loaded = st.load(folder + "/a.safetensors", placed, mesh)
    for name, value in loaded.items():
        assert value.placements == tuple(placed) and torch.equal(value.full_tensor(), torch.from_numpy(whole[name])), name
x = torch.ones(3, 8)
weights = st.load(folder + "/a.safetensors", {"w": [Shard(0)], "v": [Shard(1)]}, mesh)
y = torch.nn.functional.linear(torch.nn.functional.linear(x, weights["w"].to_local()), weights["v"].to_local())
dist.all_reduce(y)
w, v = (torch.from_numpy(whole[n]) for n in "wv")
assert torch.allclose(y, x @ w.T @ v.T, rtol=1e-4)
dist.barrier()
dist.destroy_process_group()
print("ok")
"""


def test_torch_with_gloo(tmp_path, rng):
    pytest.importorskip("torch")
    sw.save(tmp_path / "a.safetensors", {"w": rng.standard_normal((10, 8)).astype("f4"), "v": rng.standard_normal((6, 10)).astype("f4")})
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", GLOO, str(tmp_path), str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    for process in ranks:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and out.strip() == "ok", err[-3000:]


@pytest.mark.parametrize("name,last", [("jax_tensor_parallel.py", "largest difference to one device"), ("keras_model_parallel.py", "trained on")])
def test_example(name, last, tmp_path):
    done = subprocess.run([sys.executable, "-W", "ignore", HERE.parents[2] / "examples" / name, tmp_path], capture_output=True, text=True, check=False,
                          timeout=600)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(last), done.stdout + done.stderr[-3000:]
