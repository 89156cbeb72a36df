"""Saving over what is there: the repository that the model reads from, older saves of it, other models beside it."""
import json
import os
import shutil
import tempfile

import pytest
import torch
from offloaded_models import STATES, contents, from_repo, llama, logits, reference
from safetensors.torch import load_file, save_file

import shardwright as sw
import shardwright.torch as swt


def index_of(directory) -> dict:
    return json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]


def weights_in(directory) -> set[str]:
    return {path.name for path in directory.glob("*.safetensors*")}


@pytest.mark.parametrize("size", ["15KB", "20KB", "30KB", "50GB"])
@pytest.mark.parametrize("state", ["repo", "mixed"])
def test_over_the_repository_that_it_reads_from(repos, tmp_path, state, size):
    """transformers deletes the shards before they are read, or leaves files of two saves that load with wrong values (20KB: the same names)."""
    repo = tmp_path / "repo"
    shutil.copytree(repos / "tied", repo)
    expected = reference(repos / "tied", tmp_path / "reference", size)
    model = STATES[state](repo, None)
    outputs = logits(model)
    for again in (size, size, "25KB", size):
        swt.save_pretrained(model, repo, max_shard_size=again)
        assert torch.equal(logits(model), outputs), "the live model reads the new files"
    assert contents(repo) == expected
    assert torch.equal(logits(from_repo(repo)), outputs)


@pytest.mark.parametrize("links", ["in the repository", "to the repository"])
def test_through_links(repos, tmp_path, links):
    """As the hub's cache has it: the files of the repository are links to elsewhere. Or the model was loaded through links into it."""
    repo, behind = tmp_path / "repo", tmp_path / "behind"
    shutil.copytree(repos / "untied", behind)
    repo.mkdir()
    for path in behind.iterdir():
        (repo / path.name).symlink_to(path)
    model = STATES["repo"](repo, None)
    outputs = logits(model)
    target = repo if links == "in the repository" else behind
    for size in ("20KB", "15KB"):
        swt.save_pretrained(model, target, max_shard_size=size)
        assert torch.equal(logits(model), outputs) and torch.equal(logits(from_repo(target)), outputs)


def test_pointers_that_are_elsewhere_stay(repos, tmp_path):
    repo = tmp_path / "repo"
    shutil.copytree(repos / "mixtral", repo)
    model = from_repo(repo, device_map={"": "disk"}, offload_folder=tmp_path / "offload")
    outputs, fused = logits(model), contents(tmp_path / "offload")
    swt.save_pretrained(model, repo, max_shard_size="100KB")
    assert torch.equal(logits(model), outputs) and contents(tmp_path / "offload") == fused


def test_over_its_own_offload_folder(repos, tmp_path):
    """The folder's files are no part of the set that is written, and the model goes on reading them."""
    model = STATES["disk_offload"](repos / "untied", tmp_path / "offload")
    outputs, before = logits(model), contents(tmp_path / "offload")
    swt.save_pretrained(model, tmp_path / "offload")
    assert contents(tmp_path / "offload").items() >= before.items()
    assert torch.equal(logits(model), outputs) and torch.equal(logits(from_repo(tmp_path / "offload")), outputs)


def test_what_only_the_old_files_had_stays_in_memory(tmp_path):
    """A buffer that is not saved, offloaded by a pointer into the file that is replaced."""
    from accelerate import dispatch_model

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("shift", torch.arange(3.0), persistent=False)

        def forward(self, x):
            return self.w * x + self.shift
    model = torch.nn.Sequential(Net())
    save_file({"0.w": torch.full((3,), 2.0), "shift": torch.arange(3.0)}, tmp_path / "model.safetensors")
    index = {"0.w": {"safetensors_file": str(tmp_path / "model.safetensors")},
             "0.shift": {"safetensors_file": str(tmp_path / "model.safetensors"), "weight_name": "shift"}}
    model = dispatch_model(model, {"0": "disk"}, offload_index=index, offload_buffers=True, main_device="cpu")
    expected = model(torch.ones(3))
    swt.save_pretrained(model, tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == {"0.w"}
    assert torch.equal(model(torch.ones(3)), expected)


def test_sizes_one_after_the_other_leave_no_stale_file(repos, tmp_path):
    """transformers' test_checkpoint_sharding_local, and single files in between: loaders prefer one that stands there."""
    model, other = STATES["repo"](repos / "untied", None), llama(seed=7)
    other.save_pretrained(tmp_path / "out")
    for size in ("10KB", "20KB", "50GB", "15KB", 12_345, "50GB"):
        swt.save_pretrained(model, tmp_path / "out", max_shard_size=size)
        assert torch.equal(logits(from_repo(tmp_path / "out")), logits(model))
        shards = weights_in(tmp_path / "out")
        if size == "50GB":
            assert shards == {"model.safetensors"}
            continue
        assert shards == {*index_of(tmp_path / "out").values(), "model.safetensors.index.json"}
        limit = size if isinstance(size, int) else int(size[:-2]) * 1000
        for name in set(index_of(tmp_path / "out").values()):
            tensors = load_file(tmp_path / "out" / name)
            assert len(tensors) == 1 or sum(t.nbytes for t in tensors.values()) <= limit


def test_others_in_the_directory_are_not_touched(repos, tmp_path):
    """transformers deletes the shards of variants. Nor do adapters, other formats and what is not of the old set go."""
    out = tmp_path / "out"
    llama(seed=3).save_pretrained(out, max_shard_size="20KB", variant="fp16")
    save_file({"a": torch.ones(2)}, out / "adapter_model.safetensors")
    save_file({"a": torch.ones(2)}, out / "model-00099-of-00099.safetensors")
    sw.save(out / "model.weights.h5", {"layers/a/vars/0": torch.ones(2)})
    (out / "tokenizer.json").write_text("{}")
    before = contents(out)
    model = STATES["repo"](repos / "untied", None)
    for size in ("20KB", "50GB", "30KB"):
        swt.save_pretrained(model, out, max_shard_size=size)
        now = contents(out)
        assert all(now[name] == data for name, data in before.items() if "config" not in name)
    plain = contents(out)
    swt.save_pretrained(model, out, max_shard_size="50GB", variant="fp16")
    now = contents(out)
    assert {name for name in now if name.startswith("model.fp16") or name.endswith("fp16.json")} == {"model.fp16.safetensors"}
    assert all(now[name] == data for name, data in plain.items() if "fp16" not in name)


def test_an_old_index_that_names_what_is_not_its_own(tmp_path):
    """What is not replaced is removed by the old index, but by none that names what cannot be a shard; and of a link the link."""
    out = tmp_path / "out"
    out.mkdir()
    for path in (tmp_path / "victim.safetensors", out / "notes.txt", out / "config_of_mine.json"):
        path.write_text("precious")
    (out / "model-00001-of-00002.safetensors").symlink_to(tmp_path / "victim.safetensors")
    names = ["../victim.safetensors", str(tmp_path / "victim.safetensors"), "notes.txt", "config_of_mine.json", "model-00001-of-00002.safetensors", ".", ""]
    left = ["out/config_of_mine.json", "out/model.safetensors", "out/notes.txt", "victim.safetensors"]
    for weight_map in ({str(i): name for i, name in enumerate(names)}, {"a": 7}, [1], {"a": names[4]}):
        shard = [f"out/{names[4]}"] if weight_map != {"a": names[4]} else []
        (out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        swt.save_model(torch.nn.Linear(2, 2), out)
        assert sorted(contents(tmp_path)) == sorted(left + shard)


def test_files_have_the_usual_rights(repos, tmp_path):
    """transformers' are for their owner alone (0600)."""
    swt.save_pretrained(STATES["repo"](repos / "untied", None), tmp_path / "out", max_shard_size="20KB")
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir() if path.suffix == ".safetensors"} == {0o666 & ~mask}


def longer(path):
    with open(path, "ab") as file:
        file.write(b"x")


def other_bytes(path):
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def another_file(path):
    other = path.with_name("other")
    shutil.copy2(path, other)
    os.replace(other, path)


@pytest.mark.parametrize("change", [longer, other_bytes, another_file])
@pytest.mark.parametrize("state", ["repo", "disk_offload"])
def test_a_failure_leaves_all_as_it_was(repos, tmp_path, monkeypatch, state, change):
    """A file that the model is on changes between looking and reading: its length, its bytes, or all of it but its time."""
    repo = tmp_path / "repo"
    shutil.copytree(repos / "untied", repo)
    model = STATES[state](repo, tmp_path / "offload")
    victim = sorted(repo.glob("*-of-*"))[1] if state == "repo" else tmp_path / "offload" / "model.norm.weight.dat"
    import shardwright.torch.pretrained as pretrained
    real = pretrained.write_sources

    def changed(*args, **more):
        change(victim)
        assert os.listdir(tmp_path / "temporary") == []
        return real(*args, **more)
    monkeypatch.setattr(pretrained, "write_sources", changed)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_bytes(b"old")
    with pytest.raises(sw.AbortedError, match=f"{victim.name}.*not what it was|not what it was.*{victim.name}"):
        swt.save_pretrained(model, tmp_path / "out", max_shard_size="20KB")
    assert contents(tmp_path / "out") == {"model.safetensors": b"old"}
