"""A model that transformers has split over two processes: one repository, written by both, that is the one process's own byte for byte."""
import os
import socket
import subprocess
import sys

from offloaded_models import contents, from_repo, reference

CODE = """
import sys, torch, torch.distributed as dist, transformers
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
dist.barrier()
dist.destroy_process_group()
print("ok", flush=True)
"""


def test_models_split_by_their_plan(repos, tmp_path):
    kinds = ["tied", "untied"]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", CODE, str(repos), str(tmp_path), *kinds], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    for process in ranks:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and out.strip().endswith("ok"), err[-3000:]
    for kind in kinds:
        assert contents(tmp_path / kind) == reference(repos / kind, tmp_path / f"{kind} in one", "15KB")
        assert from_repo(tmp_path / kind) is not None
