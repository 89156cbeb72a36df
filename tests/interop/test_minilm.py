"""The real all-MiniLM-L6-v2 model: what transformers computes from it does not change."""
import json
import os
import pathlib
from operator import itemgetter
import shutil
import signal
import subprocess
import sys

import pytest
import raw
import torch
from transformers import AutoModel, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SENTENCES = ["A man is eating food.", "A man eats a piece of bread.", "The new movie is awesome.",
             "Shards hold tensors; an index says which.", "", "caf\u00e9 \u4f60\u597d \U0001f600"]


def embeddings(directory) -> torch.Tensor:
    """Mean-pooled and normalised, as the model's card says."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory).eval()
    batch = tokenizer(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch)[0]
    mask = batch["attention_mask"].unsqueeze(-1).float()
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1)


@pytest.fixture(scope="module")
def expected(minilm) -> torch.Tensor:
    values = embeddings(minilm)
    # The card's own claim, roughly: the two about eating are close, the film is far. A model that failed to load is not.
    assert values[0] @ values[1] > 0.6 > 0.3 > values[0] @ values[2]
    return values


def test_resharded_directory_opens_in_transformers(shardwright, minilm, expected, tmp_path):
    target = tmp_path / "shards"
    summary = shardwright.copy(minilm, target, "--max-shard-size", "20MB")
    shards = sorted(p.name for p in target.glob("*.safetensors"))
    assert summary["shards"] == len(shards) >= 4
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == shards
    # All that was there and is no tensor is there again.
    for file in minilm.rglob("*"):
        if file.is_file() and file.name != "model.safetensors" and not file.name.startswith("."):
            assert (target / file.relative_to(minilm)).read_bytes() == file.read_bytes(), file
    assert torch.equal(embeddings(target), expected)


def test_round_trip_through_keras_weights(shardwright, minilm, expected, tmp_path):
    shards, keras, back = tmp_path / "shards", tmp_path / "keras", tmp_path / "back"
    keras.mkdir()
    back.mkdir()
    shardwright.copy(minilm, shards, "--max-shard-size", "20MB")
    shardwright.copy(shards, keras / "minilm.weights.json", "--max-shard-size", "30MB")
    shardwright.copy(keras / "minilm.weights.json", back / "model.safetensors")
    assert raw.read(back / "model.safetensors") == raw.read(minilm / "model.safetensors")
    hashes = sorted(shardwright.json("hash", minilm), key=itemgetter("name"))
    for path in (shards, keras / "minilm.weights.json", back / "model.safetensors"):
        shardwright.run("verify", path, "--full")
        assert shardwright.json("diff", minilm, path) == []
        # In the order of each file; the hashes do not depend on it.
        assert sorted(shardwright.json("hash", path), key=itemgetter("name")) == hashes
    for file in minilm.glob("*"):
        if file.is_file() and not (back / file.name).exists():
            shutil.copy(file, back / file.name)
    assert torch.equal(embeddings(back), expected)


def test_one_file_is_the_published_one(shardwright, minilm, tmp_path):
    """Sharded and merged again: byte for byte what was published, for it is in the order of the library."""
    shardwright.copy(minilm, tmp_path / "shards", "--max-shard-size", "20MB")
    shardwright.copy(tmp_path / "shards", tmp_path / "model.safetensors")
    assert raw.read(tmp_path / "model.safetensors") == raw.read(minilm / "model.safetensors")


def test_demo_ends_quietly_when_nobody_reads_on(shardwright, minilm):
    """`make demo | head`."""
    process = subprocess.Popen([sys.executable, ROOT / "tools" / "demo.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARDWRIGHT_BIN": str(shardwright.path)})
    assert "all-MiniLM-L6-v2" in process.stdout.readline() + process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert (process.wait(120), errors) == (128 + signal.SIGPIPE, "") and not (ROOT / "demo-output").exists()


@pytest.mark.parametrize("way", ["pointers", "folder"])
def test_through_disk_offload(minilm, expected, tmp_path, way):
    """Saved from a model that is all on disk; and through an offload folder, which accelerate wrote, without a framework."""
    from accelerate import disk_offload

    import shardwright
    import shardwright.torch
    target = tmp_path / "saved"
    if way == "pointers":
        model = AutoModel.from_pretrained(minilm, device_map={"": "disk"})
        assert all(parameter.device.type == "meta" for parameter in model.parameters())
        summary = shardwright.torch.save_pretrained(model, target, max_shard_size="20MB")
        assert summary.shards >= 4
    else:
        disk_offload(AutoModel.from_pretrained(minilm), tmp_path / "folder")
        shardwright.copy(tmp_path / "folder", target, format="safetensors", max_shard_size="20MB")
    for file in minilm.iterdir():
        if file.is_file() and ("token" in file.name or "vocab" in file.name or file.name == "config.json"):
            shutil.copyfile(file, target / file.name)
    assert torch.equal(embeddings(target), expected)
