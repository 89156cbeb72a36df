"""Makes the safetensors fixtures from the real libraries; run it with the test environment's Python.

  hub_split.json          what huggingface_hub's splitter answers for random sizes, limits and shared storages
  hub_save.json           what save_torch_state_dict writes: file headers and index, byte for byte
  safetensors_bytes.json  what safetensors' own writer makes of all dtypes it takes
"""

import ctypes
import json
import pathlib
import random
import tempfile

import torch
from huggingface_hub import save_torch_state_dict
from huggingface_hub.serialization._base import split_state_dict_into_shards_factory
from safetensors import serialize
from safetensors._safetensors_rust import TensorSpec

HERE = pathlib.Path(__file__).parent
RNG = random.Random(20260801)


def split_case(items, limit):
    """items: [bytes, storage or None]; names are the indexes."""
    state = {str(i): i for i in range(len(items))}
    split = split_state_dict_into_shards_factory(
        state,
        get_storage_size=lambda i: items[i][0],
        get_storage_id=lambda i: items[i][1],
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit,
    )
    return {
        "limit": limit,
        "items": [[size, -1 if storage is None else storage] for size, storage in items],
        "total": split.metadata["total_size"],
        "files": [[name, [int(t) for t in tensors]] for name, tensors in split.filename_to_tensors.items()],
    }


def random_split_case():
    count = RNG.choice([0, 1, 2, 3, 5, 8, 13, 40])
    limit = RNG.choice([0, 1, 5, 10, 20, 100])
    top = RNG.choice([3, 10, 30])
    shared = RNG.random() < 0.5
    items = []
    for _ in range(count):
        storage = RNG.randrange(max(1, count // 2)) if shared and RNG.random() < 0.4 else None
        # As from one storage: its size is the same under every name.
        size = next((s for s, st in items if st == storage and storage is not None), RNG.randrange(top + 1))
        items.append([size, storage])
    return split_case(items, limit)


def write_split():
    cases = [
        split_case([[2, None], [20, None], [2, None]], 10),  # the shard of an oversized tensor comes first
        split_case([[2, 1], [9, None], [2, 1], [2, None]], 10),
        split_case([[5, None], [5, None], [1, None]], 10),
        split_case([[0, None], [3, None], [0, None], [4, None]], 0),
        split_case([[20, 7], [1, None], [20, 7]], 10),
    ]
    cases += [random_split_case() for _ in range(200)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "hub_split.json").write_text(f"[\n{lines}\n]\n")


TORCH = {
    "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "C64": torch.complex64, "I16": torch.int16, "U32": torch.uint32,
}


def save_case(tensors, limit, metadata, ties=()):
    """tensors: [name, dtype, shape] in state dict order; ties: (alias, kept) appended to it."""
    state = {name: torch.zeros(shape, dtype=TORCH[dtype]) for name, dtype, shape in tensors}
    for alias, kept in ties:
        state[alias] = state[kept]
    with tempfile.TemporaryDirectory() as folder:
        save_torch_state_dict(dict(state), folder, max_shard_size=limit, metadata=dict(metadata))
        files = {}
        for path in sorted(pathlib.Path(folder).iterdir()):
            data = path.read_bytes()
            if path.suffix == ".safetensors":
                end = 8 + int.from_bytes(data[:8], "little")
                files[path.name] = {"header": data[8:end].decode(), "size": len(data)}
            else:
                files[path.name] = {"text": data.decode()}
    return {"tensors": tensors, "ties": list(ties), "limit": limit, "metadata": metadata, "files": files}


def random_save_case():
    names = ["wte.weight", "h.0.ln.bias", "h.0.attn", "größe", 'quo"te', "back\\slash", "tab\there", "日本", "😀", "z", "A", "del\x7f", ""]
    RNG.shuffle(names)
    tensors = []
    empty = 0
    for name in names[: RNG.randrange(1, len(names))]:
        # At most one empty tensor: the hub takes all of them for one storage (pointer 0), and puts them where the first one is.
        low = 0 if empty == 0 and RNG.random() < 0.1 else 1
        shape = [RNG.randrange(low, 5) for _ in range(RNG.randrange(0, 4))]
        empty += 0 in shape
        tensors.append([name, RNG.choice(sorted(TORCH)), shape])
    # One key beside format at most where a single file could hold it: safetensors writes several in random order.
    metadata = RNG.choice([{}, {"note": "größe \"x\"\n"}])
    return save_case(tensors, RNG.choice([20, 64, 200]), metadata)


def write_save():
    plain = [["a.w", "F32", [2, 3]], ["b.w", "BF16", [4]], ["c.w", "F32", [5]], ["d", "I64", []]]
    cases = [
        save_case(plain, 30, {"z": "1", "a": "2"}),
        save_case(plain, 1000, {}),
        save_case(plain, 40, {}, ties=[("tied", "b.w"), ("tied2", "b.w"), ("x", "d")]),
    ]
    while len(cases) < 40:
        case = random_save_case()
        single = list(case["files"]) == ["model.safetensors"]
        if not (single and case["metadata"]):
            cases.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "hub_save.json").write_text(f"[\n{lines}\n]\n")


RUST = {
    "BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16",
    "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64",
    "I64": "int64", "U64": "uint64",
}
BITS = {"BOOL": 8, "F4": 4, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def bytes_case(tensors, metadata):
    buffer = ctypes.create_string_buffer(1 << 16)
    specs = {}
    for name, dtype, shape in tensors:
        bits = BITS.get(dtype, 8 if dtype.startswith("F8") else 32)
        for extent in shape:
            bits *= extent
        # The writer doubles the last dimension of the packed type itself.
        given = shape[:-1] + [shape[-1] // 2] if dtype == "F4" else shape
        specs[name] = TensorSpec(dtype=RUST[dtype], shape=given, data_ptr=ctypes.addressof(buffer), data_len=bits // 8)
    whole = serialize(specs, metadata)
    end = 8 + int.from_bytes(whole[:8], "little")
    return {"tensors": tensors, "metadata": metadata, "head": whole[:end].hex(), "size": len(whole)}


def write_bytes():
    # The first ones are the golden cases of the library's own test_serialization.
    cases = [
        bytes_case([["attn.0", "F32", [1, 2, 3]]], None),
        bytes_case([["attn0", "F32", [1, 1, 2, 3]]], None),
        bytes_case([], None),
        bytes_case([], {"framework": "pt"}),
        # Not ([], {}): safetensors 0.8.0 writes `{},"__metadata__":{}}` for it, which nothing can read.
        bytes_case([["x", "U8", [1]]], {}),
        bytes_case([["test2", "F16", [2, 2]], ["test1", "I32", [2, 2]]], None),
        bytes_case([["test", "BF16", [2, 2]]], None),
        bytes_case([["b", "F4", [3, 2]], ["a", "F4", [2]]], {"format": "pt"}),
        bytes_case([[f"t{i}", dtype, [3, 2]] for i, dtype in enumerate(RUST)], {"format": "pt"}),
        bytes_case([[f"t{i}", dtype, [0, 2]] for i, dtype in enumerate(RUST)], None),
        bytes_case([[chr(c) + "x", "U8", []] for c in range(0x00, 0x30)] + [["é😀", "U8", [1]], ["\x7f", "U8", [2]]], {"k": 'v"\\\n\x01'}),
    ]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "safetensors_bytes.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    write_split()
    write_save()
    write_bytes()
