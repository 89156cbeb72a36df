"""Plain modules and state dicts, and models filled part by part."""
import json

import pytest
import torch
from offloaded_models import MIXED, from_repo, llama, logits
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

import shardwright as sw
import shardwright.torch as swt


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.middle, self.head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.tensor(3))

    def forward(self, x):
        return self.head(self.middle(self.embed(x)))


def test_as_safetensors_saves_it(tmp_path):
    model = Tied()
    save_model(model, str(tmp_path / "theirs.safetensors"))
    swt.save_model(model, tmp_path / "ours.safetensors")
    theirs, ours = load_file(tmp_path / "theirs.safetensors"), load_file(tmp_path / "ours.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    with safe_open(tmp_path / "ours.safetensors", "pt") as a, safe_open(tmp_path / "theirs.safetensors", "pt") as b:
        assert a.metadata() == {"format": "pt", **b.metadata()} and "head.weight" in a.metadata()


@pytest.mark.parametrize("target", ["x.safetensors", "folder", "x.safetensors.index.json"])
def test_there_and_back(tmp_path, target):
    model, again = Tied(), Tied()
    swt.save_model(model, tmp_path / target, **({} if target == "x.safetensors" else {"max_shard_size": "100B"}))
    assert swt.load_model(again, tmp_path / target) == ([], [])
    assert again.head.weight is again.embed.weight
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))
    state = swt.load_state_dict(tmp_path / target)
    assert state["head.weight"] is state["embed.weight"] and state["count"].item() == 3
    if target == "x.safetensors":
        load_model(Tied(), tmp_path / target)


def test_what_shares_memory(tmp_path):
    flat = torch.arange(12.0)
    apart = {"a": flat[:6].view(2, 3), "b": flat[6:]}
    swt.save_state_dict(apart, tmp_path / "apart.safetensors")
    found = load_file(tmp_path / "apart.safetensors")
    assert all(torch.equal(found[n], t) for n, t in apart.items())
    summary = swt.save_state_dict({"whole": flat, "part": flat[:4], "again": flat, "strided": torch.arange(6).view(2, 3).T}, tmp_path / "x.safetensors")
    assert summary.tensors == 2
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["again", "strided"] and file.metadata() == {"format": "pt", "part": "again", "whole": "again"}
        assert file.get_tensor("strided").tolist() == [[0, 3], [1, 4], [2, 5]]
    swt.save_state_dict({"whole": flat, "again": flat}, tmp_path / "x.safetensors", shared_tensors_to_discard=["again"])
    assert list(load_file(tmp_path / "x.safetensors")) == ["whole"]
    with pytest.raises(sw.InvalidArgumentError, match="none of them covers|none covers|covers whole"):
        swt.save_state_dict({"a": flat[:8], "b": flat[4:]}, tmp_path / "y.safetensors")
    empty = torch.zeros(0, 3)
    swt.save_state_dict({"a": empty, "b": empty, "c": torch.zeros(0)}, tmp_path / "z.safetensors")
    assert sorted(load_file(tmp_path / "z.safetensors")) == ["a", "b", "c"]


@pytest.mark.parametrize("bad", ["meta", "text"])
def test_what_is_no_tensor_with_data(tmp_path, bad):
    value = torch.ones(2, device="meta") if bad == "meta" else "text"
    with pytest.raises(sw.InvalidArgumentError):
        swt.save_state_dict({"a": value}, tmp_path / "x.safetensors")


def test_all_that_does_not_fit_is_told_and_nothing_is_touched(tmp_path):
    save_file({"embed.weight": torch.zeros(8, 4), "middle.weight": torch.zeros(4, 5), "extra": torch.zeros(1), "count": torch.zeros(())}, tmp_path / "x.safetensors")
    model = Tied()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(sw.InvalidArgumentError) as told:
        swt.load_model(model, tmp_path / "x.safetensors")
    assert all(part in str(told.value) for part in ("'middle.weight' has shape [4, 5]", "missing: middle.bias", "unexpected: extra", "'count' is float32"))
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    save_file({"embed.weight": torch.ones(8, 4, dtype=torch.bfloat16), "extra": torch.zeros(1)}, tmp_path / "y.safetensors")
    assert swt.load_model(model, tmp_path / "y.safetensors", strict=False) == (["count", "middle.weight", "middle.bias"], ["extra"])
    assert (model.head.weight == 1).all() and model.head.weight.dtype == torch.float32


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("place", ["as it is", "cpu", "disk", "mixed", "the rest on disk"])
def test_load_into(repos, tmp_path, kind, place):
    """Parts that stay on disk become pointers: no file is written, and no tensor of them read."""
    device_map = {"as it is": None, "cpu": "cpu", "disk": {"": "disk"}, "mixed": MIXED,
                  "the rest on disk": {"model.embed_tokens": "cpu", "": "disk", "model.layers.1": "cpu", "model.layers.1.mlp": "disk"}}[place]
    expected = logits(from_repo(repos / kind))
    model = llama(kind == "tied", seed=5)
    with sw.open(repos / kind) as checkpoint:
        headers = checkpoint.bytes_read
        assert swt.load_into(model, checkpoint, device_map=device_map) == ([], [])
        assert (checkpoint.bytes_read == headers) == (place == "disk")
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == (kind == "tied")
    assert torch.equal(logits(model), expected)
    if place == "disk":
        assert all(parameter.device.type == "meta" for parameter in model.parameters())
        swt.save_pretrained(model, tmp_path / "again", max_shard_size="20KB")
        assert json.loads((tmp_path / "again" / "model.safetensors.index.json").read_text())


def test_load_into_a_model_without_memory(repos):
    with torch.device("meta"):
        model = llama()
    rotary = llama().model.rotary_emb
    swt.load_into(model, repos / "untied")
    model.model.rotary_emb = rotary
    assert torch.equal(logits(model), logits(from_repo(repos / "untied")))


def test_only_safetensors_can_be_pointed_into(repos, tmp_path):
    sw.copy(repos / "untied", tmp_path / "x.weights.h5")
    with pytest.raises(sw.UnsupportedError, match="pointed into"):
        swt.load_into(llama(), tmp_path / "x.weights.h5", device_map="disk")


def test_buffers_of_what_is_on_disk(tmp_path):
    """accelerate keeps them in memory."""
    def made(value):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        for tensor in model.state_dict().values():
            tensor.fill_(value)
        return model.eval()
    save_file(made(7).state_dict(), tmp_path / "x.safetensors")
    model = made(1)
    swt.load_into(model, tmp_path / "x.safetensors", device_map={"0": "cpu", "1": "disk"})
    assert model[1].weight.device.type == "meta" and model[1].running_mean.tolist() == [7, 7, 7] and model[1].num_batches_tracked == 7
    assert torch.equal(model(torch.ones(2, 3)), made(7)(torch.ones(2, 3)))


def test_a_map_that_parts_a_module_changes_nothing(tmp_path):
    model = torch.nn.Linear(3, 3)
    save_file({"weight": torch.full((3, 3), 7.0), "bias": torch.full((3,), 7.0)}, tmp_path / "x.safetensors")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(sw.UnsupportedError, match="name its module in the device map, or give 'weight' another place"):
        swt.load_into(model, tmp_path / "x.safetensors", device_map={"weight": "disk", "": "cpu"})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
