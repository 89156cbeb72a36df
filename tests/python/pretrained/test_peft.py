"""Models that PEFT has wrapped: adapters saved, refused without values, and merged into bases that are on disk."""
import pytest
import torch
from offloaded_models import STATES, contents, from_repo, logits
from peft import LoraConfig, PeftModel, get_peft_model

import shardwright as sw
import shardwright.torch as swt

CONFIG = {"r": 4, "target_modules": ["q_proj", "down_proj", "embed_tokens"], "init_lora_weights": False}


def wrapped(model, **more):
    torch.manual_seed(11)
    return get_peft_model(model, LoraConfig(**{**CONFIG, **more}))


def with_values(model, like):
    """An adapter that was made on the meta device, given the values of one that has some."""
    values = dict(like.named_parameters())
    for path, module in list(model.named_modules()):
        for key, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.device.type == "meta" and ("lora_" in path or "lora_" in key):
                module._parameters[key] = torch.nn.Parameter(values[f"{path}.{key}"].detach().clone())
    return model


@pytest.mark.parametrize("more", [{}, {"use_dora": True, "target_modules": ["q_proj"]}, {"modules_to_save": ["norm"], "target_modules": ["q_proj"]}],
                         ids=["lora", "dora", "modules to save"])
@pytest.mark.parametrize("state", ["memory", "repo", "disk_offload"])
def test_merged_while_it_streams(repos, tmp_path, state, more):
    """The files of PEFT's merge_and_unload() in memory; on disk that gives wrong weights. The model is as it was."""
    if state != "memory" and "target_modules" in more:
        pytest.skip("PEFT makes these from the base's weights, which are not there")
    like = wrapped(from_repo(repos / "untied"), **more)
    if "modules_to_save" in more:
        with torch.no_grad():
            like.base_model.model.model.norm.modules_to_save["default"].weight.mul_(2)
    model = like
    if state != "memory":
        model = with_values(wrapped(STATES[state](repos / "untied", tmp_path / "offload"), **more), like)
    before = {n: (id(t), t.device) for n, t in model.state_dict(keep_vars=True).items()}
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size="15KB", merge=True)
    assert {n: (id(t), t.device) for n, t in model.state_dict(keep_vars=True).items()} == before
    assert not any(getattr(module, "merged_adapters", []) for module in model.modules())
    like.merge_and_unload().save_pretrained(tmp_path / "reference", max_shard_size="15KB")
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")


def test_merged_over_its_own_base(repos, tmp_path, monkeypatch):
    """The model stays unmerged: what it still reads and the new files do not have stays in memory, up to a limit."""
    import shutil

    import shardwright.torch.pointers as pointers
    shutil.copytree(repos / "untied", tmp_path / "repo")
    like = wrapped(from_repo(repos / "untied"))
    model = with_values(wrapped(STATES["repo"](tmp_path / "repo", None)), like)
    outputs, before = logits(model), contents(tmp_path / "repo")
    with monkeypatch.context() as small, pytest.raises(sw.ResourceExhaustedError, match="save into another directory"):
        small.setattr(pointers, "_MOST_KEPT_BYTES", 5000)
        swt.save_pretrained(model, tmp_path / "repo", merge=True)
    assert contents(tmp_path / "repo") == before
    swt.save_pretrained(model, tmp_path / "repo", merge=True)
    assert torch.equal(logits(model), outputs)
    assert torch.equal(logits(from_repo(tmp_path / "repo")), logits(like.merge_and_unload()))


def test_an_adapter_without_values_is_refused(repos, tmp_path):
    model = wrapped(STATES["repo"](repos / "untied", None))
    for merge in (False, True):
        with pytest.raises(sw.InvalidArgumentError, match="it is an adapter's, made on the meta device"):
            swt.save_pretrained(model, tmp_path / "out", merge=merge)
    assert not (tmp_path / "out").exists()


def test_what_peft_has_merged_wrongly_is_refused(repos, tmp_path):
    merged = wrapped(STATES["repo"](repos / "untied", None)).merge_and_unload()
    with pytest.raises(sw.InvalidArgumentError, match="still have the base's values"):
        swt.save_pretrained(merged, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("state", ["memory", "repo"])
def test_adapters_alone(repos, tmp_path, state):
    """As PEFT saves them, also when the base is on disk; without the base."""
    like = wrapped(from_repo(repos / "untied"), target_modules=["q_proj", "down_proj"])
    like.save_pretrained(tmp_path / "reference")
    model = like
    if state == "repo":
        model = with_values(wrapped(STATES["repo"](repos / "untied", None), target_modules=["q_proj", "down_proj"]), like)
    swt.save_pretrained(model, tmp_path / "ours")
    ours, expected = contents(tmp_path / "ours"), contents(tmp_path / "reference")
    assert ours.keys() == expected.keys() and ours["adapter_model.safetensors"] == expected["adapter_model.safetensors"]
    again = PeftModel.from_pretrained(from_repo(repos / "untied"), tmp_path / "ours")
    assert torch.equal(logits(again), logits(like))


def test_nothing_to_merge(repos, tmp_path):
    with pytest.raises(sw.InvalidArgumentError, match="no adapter"):
        swt.save_pretrained(from_repo(repos / "untied"), tmp_path / "out", merge=True)
