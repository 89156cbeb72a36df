"""Small checkpoints for the command line tests, made with the reference libraries."""

import json
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file


def write_safetensors(path, tensors, metadata=None):
    save_file({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}, str(path), metadata)


def small_tensors():
    """Names with dots, one tensor of rank 0, one that is empty, three dtypes."""
    return {
        "embed.weight": np.arange(12, dtype=np.float32).reshape(4, 3) / 4,
        "head.bias": np.array([1.5, -2.0, 0.0], dtype=ml_dtypes.bfloat16),
        "layers.0.attn.weight": np.full((2, 2), 0.5, np.float32),
        "layers.1.attn.weight": np.full((2, 2), 1.5, np.float32),
        "nothing": np.zeros((0, 5), np.float32),
        "steps": np.array(7, dtype=np.int64),
    }


def make_all(root):
    root = Path(root)
    tensors = small_tensors()
    write_safetensors(root / "small.safetensors", tensors, {"format": "pt"})
    changed = dict(tensors)
    changed["embed.weight"] = tensors["embed.weight"] + np.float32(0.25)
    del changed["nothing"]
    changed["extra"] = np.zeros(1, np.float32)
    write_safetensors(root / "changed.safetensors", changed)
    make_sharded(root / "sharded", tensors)
    make_keras(root / "dense.weights.h5")
    with h5py.File(root / "words.h5", "w") as f:
        f["numbers"] = np.zeros(2, np.float32)
        f["words"] = ["one", "two"]
    whole = (root / "small.safetensors").read_bytes()
    (root / "cut.safetensors").write_bytes(whole[:-8])
    (root / "pointer.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 90868376\n")
    (root / "rename.json").write_text(json.dumps({r"^layers\.(\d+)\.": r"block_\1/", "attn": "attention"}))
    (root / "layout.toml").write_text(
        'mesh = {axis_names = ["data", "model"], shape = [2, 4]}\n[rules]\nembed = ["model", ""]\n\'attn\\.weight$\' = ["", "data"]\ntypo = [["data", "model"]]\n')
    (root / "chunks.json").write_text(json.dumps({"match": "fullmatch", "uneven": "chunk", "rules": {"embed.*": [None, "data"], "head": ["data"]}}))
    (root / "two.json").write_text(json.dumps({"rules": {"head": [], "bias": []}}))
    (root / "broken.toml").write_text("mesh = {axis_names = [\n")
    (root / "notes.txt").write_text("no checkpoint\n")


def make_sharded(folder, tensors):
    folder.mkdir()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    weight_map = {}
    for file, members in shards.items():
        write_safetensors(folder / file, {name: tensors[name] for name in members}, {"format": "pt"})
        weight_map |= {name: file for name in members}
    total = sum(array.nbytes for array in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2))
    (folder / "config.json").write_text("{}\n")


def make_keras(path):
    with h5py.File(path, "w") as file:
        for name, array in (("layers/dense/vars/0", np.ones((3, 2), np.float32)), ("layers/dense/vars/1", np.zeros(2, np.float32))):
            file.create_dataset(name, data=array)
        file["layers/dense"].attrs["name"] = "dense"
        file.create_group("vars")
