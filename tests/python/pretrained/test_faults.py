"""What goes wrong, silently or not, when transformers, accelerate and PEFT save offloaded models: one test each of what is right."""
import contextlib
import os
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch
from offloaded_models import STATES, contents, from_repo, llama, logits, reference
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import shardwright as sw
import shardwright.torch as swt
from shardwright import saving


def test_an_all_on_disk_model_saves(repos, tmp_path):
    """transformers#47333: hf_device_map {"": "disk"} failed; #33209: all meta tensors were one storage, and one shard had them all."""
    swt.save_pretrained(STATES["repo"](repos / "untied", None), tmp_path / "out", max_shard_size="10KB")
    sizes = [sum(t.nbytes for t in load_file(path).values()) for path in (tmp_path / "out").glob("*.safetensors")]
    assert len(sizes) > 5 and max(sizes) <= 10_000


def test_tensors_without_data_are_all_named_and_nothing_is_written(tmp_path):
    """accelerate#2128: NotImplementedError, cannot copy out of meta tensor. Here a hook has been replaced: its weights are lost for good."""
    from accelerate import disk_offload
    from accelerate.hooks import ModelHook, add_hook_to_module
    model = disk_offload(llama(), tmp_path / "offload")
    add_hook_to_module(model.model.layers[0].mlp.up_proj, ModelHook())
    add_hook_to_module(model.model.norm, ModelHook())
    with pytest.raises(sw.InvalidArgumentError) as told:
        swt.save_pretrained(model, tmp_path / "out")
    assert "model.layers.0.mlp.up_proj.weight" in str(told.value) and "model.norm.weight" in str(told.value) and "2 of" in str(told.value)
    assert "hook" in str(told.value) and not (tmp_path / "out").exists()


def test_the_root_sent_to_disk(repos, tmp_path):
    """dispatch_model(model, {"": "disk"}) offloads nothing and fails for want of an index: the model is in memory still, and saved from there."""
    from accelerate import dispatch_model
    expected = reference(repos / "untied", tmp_path / "reference", "20KB")
    model = from_repo(repos / "untied")
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        dispatch_model(model, {"": "disk"}, offload_dir=tmp_path / "fresh")
    swt.save_pretrained(model, tmp_path / "out", max_shard_size="20KB")
    assert contents(tmp_path / "out") == expected


def test_a_model_without_hooks_on_the_meta_device(tmp_path):
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    with pytest.raises(sw.InvalidArgumentError, match=r"2 of 2 tensors.*'weight'.*'bias'"):
        swt.save_pretrained(model, tmp_path / "out")


def test_ties_that_files_have_broken(repos, tmp_path):
    """dispatch_model and disk_offload write both names, and leave two parameters: saved twice, counted twice."""
    for state in ("dispatched", "disk_offload"):
        model = STATES[state](repos / "tied", tmp_path / state)
        assert model.lm_head.weight is not model.model.embed_tokens.weight
        swt.save_pretrained(model, tmp_path / "out" / state)
        with safe_open(tmp_path / "out" / state / "model.safetensors", "pt") as file:
            assert "lm_head.weight" not in file.keys()


def test_declared_ties_with_other_values_are_both_saved(repos, tmp_path):
    model = STATES["disk_offload"](repos / "tied", tmp_path / "offload")
    head = tmp_path / "offload" / "lm_head.weight.dat"
    head.write_bytes(bytes(head.stat().st_size))
    with pytest.warns(UserWarning, match="'lm_head.weight' is declared tied to 'model.embed_tokens.weight', and has other values"):
        swt.save_pretrained(model, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert not tensors["lm_head.weight"].any() and tensors["model.embed_tokens.weight"].any()


def test_tied_at_run_time_under_an_untied_configuration(tmp_path):
    """Only the embedding was written, and loading made up another head."""
    model = llama(tied=False)
    model.lm_head.weight = model.model.embed_tokens.weight
    swt.save_pretrained(model, tmp_path / "out")
    assert torch.equal(logits(from_repo(tmp_path / "out")), logits(model))


def test_undeclared_sharing_is_refused(tmp_path):
    model = llama()
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    with pytest.raises(sw.InvalidArgumentError, match="layers.0.mlp.up_proj.weight, model.layers.1.mlp.up_proj.weight"):
        swt.save_pretrained(model, tmp_path / "out")
    model = llama()
    flat = torch.zeros(100, dtype=torch.bfloat16)
    model.model.norm.weight.data, model.model.layers[0].input_layernorm.weight.data = flat[:32], flat[16:48]
    with pytest.raises(sw.InvalidArgumentError, match="norm.weight"):
        swt.save_pretrained(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_views_that_do_not_touch_are_tensors_of_their_own(tmp_path):
    """safetensors#304: a flat buffer with hundreds of views. Not contiguous ones are packed (#469)."""
    model, plain = llama(), llama()
    flat = torch.zeros(48 * 32 * 3, dtype=torch.bfloat16)
    for i, layer in enumerate(model.model.layers):
        part = flat[i * 48 * 32:(i + 1) * 48 * 32].view(48, 32)
        part.copy_(layer.mlp.up_proj.weight.data)
        layer.mlp.up_proj.weight.data = part
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.data.T.contiguous().T
    plain.save_pretrained(tmp_path / "reference", max_shard_size="15KB")
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size="15KB")
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")


def test_tensors_that_the_root_owns(tmp_path):
    """accelerate's save_model dropped them without a word, and failed on the sequence of hooks that they bring."""
    from accelerate import disk_offload

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.own = torch.nn.Parameter(torch.arange(4.0))
            self.register_buffer("kept", torch.arange(2))
            self.linear = torch.nn.Linear(2, 2)
    model = Net()
    expected = {n: t.detach().clone() for n, t in model.state_dict().items()}
    swt.save_pretrained(disk_offload(model, tmp_path / "offload", offload_buffers=True), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys() and all(torch.equal(found[n], t) for n, t in expected.items())


def test_a_stale_folder_of_another_shape_is_refused(repos, tmp_path):
    """accelerate does not write a folder that has an index; the second model then has the first one's bytes."""
    STATES["disk_offload"](repos / "untied", tmp_path / "offload")
    from accelerate import disk_offload
    model = disk_offload(llama(intermediate_size=56, hidden_size=48), tmp_path / "offload")
    with pytest.raises(sw.InvalidArgumentError, match=r"holds torch.bfloat16 \[64, 32\]: another model's"):
        swt.save_pretrained(model, tmp_path / "out")
    for path in (tmp_path / "offload").glob("*.dat"):
        path.write_bytes(path.read_bytes()[:-2])
    model = disk_offload(llama(), tmp_path / "offload")
    with pytest.raises(sw.InvalidArgumentError, match="another model was offloaded there"):
        swt.save_pretrained(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stale_folder_of_the_same_shape_is_what_the_model_computes_with(repos, tmp_path):
    from accelerate import disk_offload
    STATES["disk_offload"](repos / "untied", tmp_path / "offload")
    model = disk_offload(llama(seed=5), tmp_path / "offload")
    swt.save_pretrained(model, tmp_path / "out")
    assert torch.equal(logits(from_repo(tmp_path / "out")), logits(model))


def test_a_relative_repository_after_chdir(repos, tmp_path, monkeypatch):
    shutil.copytree(repos / "untied", tmp_path / "repo")
    monkeypatch.chdir(tmp_path)
    model = STATES["repo"]("repo", None)
    os.makedirs("elsewhere")
    monkeypatch.chdir("elsewhere")
    with pytest.raises(sw.InvalidArgumentError, match="the path is relative"):
        swt.save_pretrained(model, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    swt.save_pretrained(model, "out")
    assert torch.equal(logits(from_repo(tmp_path / "out")), logits(from_repo(repos / "untied")))


def test_a_repository_that_is_gone(repos, tmp_path):
    shutil.copytree(repos / "untied", tmp_path / "repo")
    model = STATES["repo"](tmp_path / "repo", None)
    shutil.rmtree(tmp_path / "repo")
    with pytest.raises(sw.InvalidArgumentError, match="no such file"):
        swt.save_pretrained(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wrong_index_is_told_before_anything_is_written(repos, tmp_path):
    """Plain loading ignores which shard the index names for a tensor; offloading believes it."""
    import json
    shutil.copytree(repos / "untied", tmp_path / "repo")
    path = tmp_path / "repo" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    wrong = next(name for name in index["weight_map"] if "norm" in name)
    index["weight_map"][wrong] = next(f for f in index["weight_map"].values() if f != index["weight_map"][wrong])
    path.write_text(json.dumps(index))
    model = STATES["repo"](tmp_path / "repo", None)
    with pytest.raises(sw.InvalidArgumentError, match=f"has no tensor '{wrong}'"):
        swt.save_pretrained(model, tmp_path / "out")


def test_an_index_that_lies(tmp_path):
    """Whatever it says of a tensor, the error names that tensor, and nothing is written."""
    from accelerate.hooks import AlignDevicesHook
    from accelerate.utils import OffloadedWeightsLoader
    save_file({"w": torch.ones(3)}, tmp_path / "a.safetensors")
    (tmp_path / "w.dat").write_bytes(bytes(12))
    os.mkfifo(tmp_path / "pipe.dat")
    (tmp_path / "folder.dat").mkdir()
    (tmp_path / "loop.dat").symlink_to(tmp_path / "loop.dat")
    (tmp_path / "zero.dat").symlink_to("/dev/zero")
    good, pointer = {"dtype": "float32", "shape": [3]}, {"safetensors_file": str(tmp_path / "a.safetensors")}
    entries = [*({**good, "dtype": dtype} for dtype in ("float64", "load", "complex256", 7, None)),
               *({**good, "shape": shape} for shape in ([2], [-3], [3.0], [2**62, 2**62], "3", None, 3)), [1], "text",
               *({**pointer, "safetensors_file": path} for path in (7, "a\0b", str(tmp_path), "/dev/zero", "/nowhere", str(tmp_path / "pipe.dat"))),
               *({**pointer, "weight_name": name} for name in ("v", 7)), {**pointer, "dtype": "load"}]
    cases = [("w", entry) for entry in entries] + [(name, good) for name in ("pipe", "folder", "loop", "zero", "gone")]
    for name, entry in cases:
        model = torch.nn.Module()
        model._parameters[name] = torch.nn.Parameter(torch.empty(3, device="meta"))
        loader = OffloadedWeightsLoader(save_folder=tmp_path, index={name: entry})
        model._hf_hook = AlignDevicesHook(execution_device="cpu", offload=True, weights_map=loader)
        with pytest.raises(sw.InvalidArgumentError, match="have no data anywhere") as raised:
            swt.save_pretrained(model, tmp_path / "out")
        assert raised.value.tensor == name
    assert not (tmp_path / "out").exists()


def test_folders_made_before_one_that_cannot_be(tmp_path):
    with pytest.raises(sw.Error) as raised:
        swt.save_pretrained(torch.nn.Linear(2, 2), tmp_path / "new" / ("x" * 300) / "out")
    assert raised.value.path == str(tmp_path / "new" / ("x" * 300)) and os.listdir(tmp_path) == []


def test_what_one_process_refuses_is_told_to_the_others(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(saving._core, "refuse_write", lambda ranks, why: told.append((ranks, why)))
    with pytest.raises(sw.InvalidArgumentError):
        swt.save_pretrained(torch.nn.Linear(2, 2), tmp_path / "out", metadata={"a": 1}, ranks=SimpleNamespace(_core="all"))
    (ranks, why), = told
    assert ranks == "all" and "text to text" in why


def test_a_disk_that_is_too_small(tmp_path):
    """Four terabytes that take no room: refused with both numbers, nothing written."""
    from accelerate.hooks import AlignDevicesHook
    from accelerate.utils import OffloadedWeightsLoader
    folder = tmp_path / "offload"
    folder.mkdir()
    model = torch.nn.Linear(2**20, 2**20, bias=False, device="meta")
    with open(folder / "weight.dat", "wb") as file:
        try:
            file.truncate(4 * 2**40)
        except OSError:
            pytest.skip("files cannot be that long here")
    loader = OffloadedWeightsLoader(save_folder=folder, index={"weight": {"dtype": "float32", "shape": [2**20, 2**20]}})
    model._hf_hook = AlignDevicesHook(execution_device="cpu", offload=True, weights_map=loader)
    with pytest.raises(sw.ResourceExhaustedError, match="not enough disk space"):
        swt.save_pretrained(model, tmp_path / "new" / "out", max_shard_size="10GB")
    assert sorted(os.listdir(tmp_path)) == ["offload"]


@contextlib.contextmanager
def small_disk(path, nbytes):
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", path], check=False).returncode != 0:
        pytest.fail("mounting a tmpfs needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


class Asked(Mapping):
    """What hooks read from, and nobody knows: the engine has to ask for each tensor."""

    def __init__(self, loader, before):
        self.loader, self.before = loader, before

    def __getitem__(self, key):
        self.before()
        return self.loader[key]

    def __iter__(self):
        return iter(self.loader)

    def __len__(self):
        return len(self.loader)


def test_a_disk_that_fills_up_meanwhile(repos, tmp_path):
    """transformers leaves new shards beside the old set, or, where that had shards too, nothing that loads."""
    with small_disk(tmp_path / "disk", 2**21) as disk:
        swt.save_pretrained(STATES["repo"](repos / "tied", None), disk / "out", max_shard_size="20KB")
        before = contents(disk)
        model = STATES["disk_offload"](repos / "untied", tmp_path / "offload")

        def somebody_else_is_faster():
            with open(disk / "full", "ab", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
        for module in model.modules():
            if getattr(getattr(module, "_hf_hook", None), "weights_map", None) is not None:
                module._hf_hook.weights_map.dataset = Asked(module._hf_hook.weights_map.dataset, somebody_else_is_faster)
        with pytest.raises(sw.ResourceExhaustedError, match="No space left"):
            swt.save_pretrained(model, disk / "out", max_shard_size="15KB")
        (disk / "full").unlink()
        assert contents(disk) == before


@pytest.mark.parametrize("state", ["repo", "disk_offload"])
def test_the_disk_holds_the_result_and_what_was_there(repos, tmp_path, state):
    """Nothing else, at no time: as much as both have, and it is enough."""
    pages = sum(-(-len(data) // 4096) for data in reference(repos / "untied", tmp_path / "reference", "20KB").values())
    model = STATES[state](repos / "untied", tmp_path / "offload")
    with small_disk(tmp_path / "disk", 2 * pages * 4096 + 16 * 4096) as disk:  # with directories, and the journal of the replacement
        for _ in range(2):
            swt.save_pretrained(model, disk / "out", max_shard_size="20KB")
        assert contents(disk / "out") == contents(tmp_path / "reference")


def test_memory_that_is_too_small_is_told_before(repos, tmp_path, monkeypatch):
    import shardwright.torch.writing as writing
    monkeypatch.setattr(writing, "available_memory", lambda: 1000)
    with pytest.warns(ResourceWarning, match="268,435,456 of budget.*1,000 are free"):
        swt.save_pretrained(STATES["repo"](repos / "untied", None), tmp_path / "out")
    monkeypatch.setattr(writing, "available_memory", lambda: 268_435_456 + 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swt.save_pretrained(STATES["repo"](repos / "untied", None), tmp_path / "out")


def test_integers_keep_their_type(tmp_path):
    """transformers#46849: pointers with the model's type cast integer buffers to it."""
    from accelerate import dispatch_model
    save_file({"0.steps": torch.tensor([2**40 + 1]), "0.weight": torch.ones(2, 2, dtype=torch.bfloat16), "0.bias": torch.ones(2)}, tmp_path / "a.safetensors")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].register_buffer("steps", torch.tensor([0]))
    path = str(tmp_path / "a.safetensors")
    index = {"0.steps": {"safetensors_file": path, "dtype": "int64"}, "0.weight": {"safetensors_file": path, "dtype": "float32"},
             "0.bias": {"safetensors_file": path}}
    dispatch_model(model, {"0": "disk"}, offload_index=index, offload_buffers=True, main_device="cpu")
    swt.save_pretrained(model, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found["0.steps"].tolist() == [2**40 + 1] and found["0.weight"].dtype == torch.float32 and found["0.weight"].tolist() == [[1, 1], [1, 1]]


def test_what_is_given_wrong(tmp_path, monkeypatch):
    """Metadata that no reader could take; a name that would be the working directory."""
    monkeypatch.chdir(tmp_path)
    for directory, metadata in (("out", {"a": 1}), ("", None)):
        with pytest.raises(sw.InvalidArgumentError, match="metadata is text|name of the directory is empty"):
            swt.save_pretrained(llama(), directory, metadata=metadata)
    assert os.listdir(tmp_path) == []


def test_keys_that_are_not_to_be_saved(repos, tmp_path):
    model = STATES["repo"](repos / "untied", None)
    model._keys_to_ignore_on_save = ["model.norm.weight"]
    swt.save_pretrained(model, tmp_path / "out")
    assert "model.norm.weight" not in load_file(tmp_path / "out" / "model.safetensors")


def test_plain_models_keep_ties_by_the_rule_of_safetensors(tmp_path):
    """Several groups; a note says what a name that is left out stands for."""
    from accelerate import cpu_offload
    from safetensors.torch import load_model

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
            self.c = torch.nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.c.bias = self.a.bias
    model = Net()
    expected = {n: t.detach().clone() for n, t in model.state_dict().items()}
    swt.save_pretrained(cpu_offload(model), tmp_path / "out")
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["a.bias", "a.weight", "b.bias", "c.weight"]
        assert file.metadata() == {"format": "pt", "b.weight": "a.weight", "c.bias": "a.bias"}
    again = Net()
    load_model(again, tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(t, expected[n]) for n, t in again.state_dict().items())


def test_reference_is_what_the_facts_say(repos, tmp_path):
    """The faults are still there: these tests are about something."""
    model = STATES["disk_offload"](repos / "untied", tmp_path / "offload")
    with pytest.raises(NotImplementedError):
        model.save_pretrained(tmp_path / "out")
    assert reference(repos / "tied", tmp_path / "reference", "20KB")
