"""Checkpoints that are cut otherwise than the modules: what is no part of one weight is put together when its turn comes."""
import pytest
import torch
import transformers
from offloaded_models import contents

import shardwright.torch as swt


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """gate and up, and queries, keys and values, are one weight each in its checkpoints."""
    torch.manual_seed(2)
    config = transformers.HrmTextConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=32)
    path = tmp_path_factory.mktemp("hrm") / "repo"
    transformers.HrmTextForCausalLM(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("size", ["20KB", "50GB"])
@pytest.mark.parametrize("state", ["memory", "disk"])
def test_concatenated_weights(repo, tmp_path, state, size):
    transformers.HrmTextForCausalLM.from_pretrained(repo).save_pretrained(tmp_path / "reference", max_shard_size=size)
    more = {} if state == "memory" else {"device_map": {"": "disk"}, "offload_folder": tmp_path / "offload"}
    model = transformers.HrmTextForCausalLM.from_pretrained(repo, **more)
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size=size)
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")


def test_as_the_modules_have_it(repo, tmp_path):
    model = transformers.HrmTextForCausalLM.from_pretrained(repo)
    model.save_pretrained(tmp_path / "reference", save_original_format=False)
    swt.save_pretrained(model, tmp_path / "ours", save_original_format=False)
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")
