"""A model that transformers has split over two processes: one repository, written by both, that is the one process's own byte for byte, in bounded memory."""
import os
import socket
import subprocess
import sys

import process_memory
from offloaded_models import contents, from_repo, reference
from safetensors import safe_open

CODE = """
import os, sys, threading, torch, torch.distributed as dist, transformers
from process_memory import anonymous_bytes
import shardwright.torch as swt
transformers.logging.set_verbosity_error()
repos, out, kinds = sys.argv[1], sys.argv[2], sys.argv[3:]
dist.init_process_group("gloo")
for kind in kinds:
    model = transformers.AutoModelForCausalLM.from_pretrained(f"{repos}/{kind}", dtype="auto", tp_plan="auto").eval()
    split = [n for n, p in model.named_parameters() if hasattr(p, "placements") and any(q.is_shard() for q in p.placements)]
    assert len(split) > 10, split
    ids = torch.arange(8)[None]
    with torch.no_grad():
        before = model(ids).logits
    summary = swt.save_pretrained(model, f"{out}/{kind}", max_shard_size="15KB", memory="16MiB")
    assert summary.peak_memory_bytes < 80 << 20, summary
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)
# Of 512 MiB, of which each has half: what is gathered would be seen.
from torch.distributed.tensor import DTensor, Shard
mesh, module = dist.init_device_mesh("cpu", (2,)), torch.nn.Module()
for name, shape, dim in (("rows", (1024, 65536), 0), ("columns", (2048, 32768), 1)):
    local = torch.full(shape, 1 + dist.get_rank(), dtype=torch.bfloat16)
    module.register_parameter(name, torch.nn.Parameter(DTensor.from_local(local, mesh, [Shard(dim)]), requires_grad=False))
MIB, base, peaks, saved = 2**20, anonymous_bytes(os.getpid()), [0], threading.Event()
def watch():
    while not saved.wait(0.002):
        peaks.append(anonymous_bytes(os.getpid()) - base)
watching = threading.Thread(target=watch)
watching.start()
swt.save_pretrained(module, f"{out}/big", memory="16MiB")
saved.set()
watching.join()
assert len(peaks) > 5 and max(peaks) <= (16 + 64) * MIB, f"{len(peaks)} times, {max(peaks) / MIB:.0f} MiB"
dist.barrier()
dist.destroy_process_group()
print("ok", flush=True)
"""


def test_models_split_by_their_plan(repos, tmp_path):
    kinds = ["tied", "untied", "mixtral"]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([os.path.dirname(process_memory.__file__), os.environ.get("PYTHONPATH", "")])}
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", CODE, str(repos), str(tmp_path), *kinds], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    for process in ranks:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and out.strip().endswith("ok"), err[-3000:]
    for kind in kinds:
        assert contents(tmp_path / kind) == reference(repos / kind, tmp_path / f"{kind} in one", "15KB")
        assert from_repo(tmp_path / kind) is not None
    with safe_open(tmp_path / "big" / "model.safetensors", "pt") as file:
        columns = file.get_slice("columns")
        assert file.get_slice("rows")[1023:1025, 7].tolist() == [1, 2] and columns.get_shape() == [2048, 65536] and columns[5, 32767:32769].tolist() == [1, 2]
