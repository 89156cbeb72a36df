"""The memory promise of save_pretrained(): the budget, and of what has to be onloaded the largest tensor, whatever the shard size.

A model on disk of 2.3 GB, tensors of 67 MB; RssAnon is sampled from outside, beside what the library itself counts. Files of the offload folder
are links to one: making them takes no time, and they are other tensors all the same.
"""
import json
import os
import shutil
import sys

import numpy as np
import process_memory
import pytest

pytestmark = pytest.mark.xdist_group("memory")
MIB = 2**20
BUDGET, LIBRARY = 32 * MIB, 64 * MIB
TENSOR, COUNT, ONLOADED = 64 * MIB, 34, 5

CODE = """
import json, sys, torch, accelerate
import shardwright.torch as swt
from collections.abc import Mapping
folder, out, size, kind, count = sys.argv[1:]
with torch.device("meta"):
    model = torch.nn.Sequential(*[torch.nn.Linear(2**13, 2**12, bias=False, dtype=torch.bfloat16) for _ in range(int(count))])
accelerate.dispatch_model(model, {"": "disk"}, offload_dir=folder, main_device="cpu", force_hooks=True)
class Asked(Mapping):
    def __init__(self, loader): self.loader = loader
    def __getitem__(self, key): return self.loader[key]  # a copy of its file
    def __iter__(self): return iter(self.loader)
    def __len__(self): return len(self.loader)
if kind == "onloaded":
    for module in model:
        module._hf_hook.weights_map.dataset = Asked(module._hf_hook.weights_map.dataset)
torch.ones(8).sum()
swt.save_state_dict({"warm": torch.ones(3)}, out + ".safetensors")
print("ready", flush=True); sys.stdin.readline()
summary = swt.save_pretrained(model, out, max_shard_size=size, memory=%d)
print("done", flush=True); sys.stdin.readline()
json.dump({"peak": summary.peak_memory_bytes, "read": summary.bytes_read, "shards": summary.shards}, open(out + ".json", "w"))
""" % BUDGET


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("model")
    (root / "0.weight.dat").write_bytes(np.random.default_rng(1).bytes(TENSOR))
    for i in range(1, COUNT):
        os.link(root / "0.weight.dat", root / f"{i}.weight.dat")
    entry = {"dtype": "bfloat16", "shape": [2**12, 2**13]}
    (root / "index.json").write_text(json.dumps({f"{i}.weight": entry for i in range(COUNT)}))
    return root


def saved(folder, tmp_path, size: str, kind: str, count: int) -> tuple[int, dict]:
    out = tmp_path / f"{kind}-{size}"
    grown = process_memory.growth([sys.executable, "-W", "ignore", "-c", CODE, str(folder), str(out), size, kind, str(count)])
    shutil.rmtree(out)
    return grown, json.loads((tmp_path / f"{kind}-{size}.json").read_text())


def test_the_peak_is_the_budget_at_any_shard_size(folder, tmp_path):
    few, told_few = saved(folder, tmp_path, "50GB", "files", COUNT)
    many, told_many = saved(folder, tmp_path, "300MB", "files", COUNT)
    assert (told_few["shards"], told_many["shards"]) == (1, 9)
    assert told_few["read"] == told_many["read"] == TENSOR * COUNT, "every byte once"
    assert max(few, many) <= BUDGET + LIBRARY, f"{few / MIB:.0f} and {many / MIB:.0f} MiB"
    assert abs(few - many) <= 16 * MIB, f"{few / MIB:.0f} and {many / MIB:.0f} MiB"
    assert max(told_few["peak"], told_many["peak"]) <= BUDGET + LIBRARY


def test_onloaded_tensors_are_one_at_a_time(folder, tmp_path):
    grown, told = saved(folder, tmp_path, "300MB", "onloaded", ONLOADED)
    assert TENSOR <= grown <= BUDGET + LIBRARY + TENSOR, f"{grown / MIB:.0f} MiB"
    assert told["shards"] == 2
