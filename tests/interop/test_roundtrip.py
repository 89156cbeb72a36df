"""Names, ties and values through every pair of formats, and casts as ml_dtypes makes them."""
import itertools

import ml_dtypes
import numpy as np
import pytest
import raw

TARGETS = {"one": "x.safetensors", "shards": "dir", "h5": "x.weights.h5", "keras": "x.weights.json", "orbax": "orbax", "torch": "x.bin"}
OPTIONS = {"orbax": ["--to", "orbax"]}
PAIRS = list(itertools.product(TARGETS, TARGETS))

ODD_NAMES = [
    "a", "model.layers.0.weight", "layers/dense/vars/0", "layers/dense/vars/1", "layers/dense/vars/00", "layers/dense/vars/x",
    "vars/0", "vars", "a/vars/0/vars/0", "a/b", "a.b", "/lead", "trail/", "a//b", ".", "..", "./x", "../x", "x/./y", "x/../y", "",
    " ", " space ", "tab\tnew\nline", "quote\"back\\slash", "caf\u00e9", "cafe\u0301", "\u4f60\u597d", "\U0001f600", "%2F", "a%00b",
    "n" * 300, "~", "*?[a]", "shardwright_name", "__init__", "0", "-1", "A", "CON", "nul\0inside",
]


def through(shardwright, tmp_path, first, second, limit):
    """Copies source.safetensors to the first kind of target, from there to the second, and back to one file, whose path is returned."""
    path = tmp_path / "source.safetensors"
    for step, target in enumerate((TARGETS[first], TARGETS[second], "last.safetensors")):
        (tmp_path / str(step)).mkdir()
        sharding = ["--max-shard-size", limit] if target in ("dir", "x.weights.json") else []
        shardwright.copy(path, tmp_path / str(step) / target, *sharding, *OPTIONS.get(target, []))
        path = tmp_path / str(step) / target
    return path


@pytest.mark.parametrize("first,second", PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_names_survive(shardwright, tmp_path, rng, first, second):
    tensors = {name: ("F32", [i % 3, 2] if i % 4 else [], rng.bytes(4 * (i % 3 * 2 if i % 4 else 1))) for i, name in enumerate(ODD_NAMES)}
    raw.write(tmp_path / "source.safetensors", tensors)
    path = through(shardwright, tmp_path, first, second, "100")
    assert raw.read(path) == tensors
    assert shardwright.json("diff", tmp_path / "source.safetensors", tmp_path / "1" / TARGETS[second]) == []


@pytest.mark.parametrize("first,second", PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_dtype_survives(shardwright, tmp_path, rng, first, second):
    tensors = raw.every_dtype(rng)
    if "orbax" in (first, second):  # zarr has no packed types
        tensors = {name: tensor for name, tensor in tensors.items() if tensor[0] not in ("F4", "F6_E2M3", "F6_E3M2")}
    if "torch" in (first, second):  # has no F6
        tensors = {name: tensor for name, tensor in tensors.items() if not tensor[0].startswith("F6")}
    raw.write(tmp_path / "source.safetensors", tensors)
    path = through(shardwright, tmp_path, first, second, "300")
    assert raw.read(path) == tensors


@pytest.mark.parametrize("first,second", PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_ties_survive(shardwright, tmp_path, rng, first, second):
    """A tie as the hub notes it: the alias in the metadata, its bytes once."""
    tensors = {"embed.weight": ("F32", [10, 4], rng.bytes(160)), "other": ("F32", [3], rng.bytes(12))}
    ties = {"head.weight": "embed.weight", "decoder.weight": "embed.weight"}
    raw.write(tmp_path / "source.safetensors", tensors, {"format": "pt", **ties})
    path = tmp_path / "source.safetensors"
    for step, target in enumerate((TARGETS[first], TARGETS[second], "last.safetensors")):
        (tmp_path / str(step)).mkdir()
        shardwright.copy(path, tmp_path / str(step) / target, *OPTIONS.get(target, []))
        path = tmp_path / str(step) / target
        assert shardwright.json("info", path)["ties"] == ties, target
    assert raw.read(path) == tensors
    assert raw.metadata_of(path) == {"format": "pt", **ties}


NUMPY = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
         "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}


def values_of(dtype: str, rng) -> np.ndarray:
    """Every bit pattern of a type of at most 16 bits; for wider ones the edges and many at random."""
    kind = np.dtype(NUMPY[dtype])
    if kind.itemsize <= 2:
        return np.arange(256**kind.itemsize, dtype=np.uint32).astype(f"u{kind.itemsize}").view(kind)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-40, 6e-8, 448, 449, 464, 465, 57344, 61440, 65504, 65520, 3.4e38], kind)
    near_one = 1 + np.arange(4096) * 2.0**-12
    bits = rng.integers(0, 2**(8 * kind.itemsize), 50_000, dtype=f"u{kind.itemsize}").view(kind)
    scaled = rng.standard_normal(50_000) * 10.0**rng.integers(-10, 6, 50_000)
    return np.concatenate([edges, -edges, near_one.astype(kind), bits, scaled.astype(kind)])


def rounded_to_odd(values: np.ndarray) -> np.ndarray:
    """F64 as F32, toward zero, with the last bit set where anything was cut off. From there a second rounding, to fewer bits, is the only one:
    ml_dtypes itself goes through F32 by nearest even, and so rounds some values twice."""
    with np.errstate(all="ignore"):
        near = values.astype(np.float32)
        toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    cut = (toward_zero.astype(np.float64) != values) & ~np.isnan(values)
    return (toward_zero.view(np.uint32) | cut).view(np.float32)


@pytest.mark.parametrize("target", NUMPY)
def test_cast_is_that_of_ml_dtypes(shardwright, tmp_path, rng, target):
    arrays = {dtype: values_of(dtype, rng) for dtype in NUMPY}
    tensors = {dtype: (dtype, [len(values)], values.tobytes()) for dtype, values in arrays.items()}
    tensors["count"] = ("I32", [3], rng.bytes(12))
    tensors["mask"] = ("BOOL", [2], b"\1\0")
    raw.write(tmp_path / "a.safetensors", tensors)
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--dtype", np.dtype(NUMPY[target]).name)
    found = raw.read(tmp_path / "b.safetensors")
    assert found["count"] == tensors["count"] and found["mask"] == tensors["mask"]
    for dtype, values in arrays.items():
        if dtype == target:
            assert found[dtype] == tensors[dtype]
            continue
        with np.errstate(all="ignore"):
            exact = rounded_to_odd(values) if dtype == "F64" and target != "F32" else values
            expected = exact.astype(NUMPY[target])
        ours = np.frombuffer(found[dtype][2], NUMPY[target])
        assert found[dtype][0] == target
        # Not-a-number keeps its being one; its payload is nobody's promise.
        nan = np.isnan(expected.astype(np.float64))
        assert np.array_equal(np.isnan(ours.astype(np.float64)), nan), dtype
        wrong = np.flatnonzero((ours.view(np.uint8).reshape(len(ours), -1) != expected.view(np.uint8).reshape(len(ours), -1)).any(1) & ~nan)
        assert wrong.size == 0, (dtype, values[wrong[:5]], ours[wrong[:5]], expected[wrong[:5]])


def test_select_and_rename(shardwright, tmp_path, rng):
    names = ["model.layers.0.mlp.weight", "model.layers.1.mlp.weight", "model.layers.0.attn.bias", "lm_head.weight"]
    tensors = {name: ("F16", [2, 2], rng.bytes(8)) for name in names}
    raw.write(tmp_path / "a.safetensors", tensors)
    (tmp_path / "rename.json").write_text(r'{"^model\\.layers\\.(\\d+)": "blk.\\1", "weight$": "w"}')
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--include", "model.*", "--exclude", "*attn*",
                     "--rename", tmp_path / "rename.json")
    assert raw.read(tmp_path / "b.safetensors") == {
        "blk.0.mlp.w": tensors[names[0]], "blk.1.mlp.w": tensors[names[1]]}
    (tmp_path / "collide.json").write_text(r'{"\\d+": "0"}')
    done = shardwright.run("copy", tmp_path / "a.safetensors", tmp_path / "c.safetensors", "--rename", tmp_path / "collide.json", code=2)
    assert "model.layers.0.mlp.weight" in done.stderr
    assert not (tmp_path / "c.safetensors").exists()
