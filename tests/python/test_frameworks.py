"""Arrays of PyTorch and JAX: saved from where they lie, and never imported by the package itself."""
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import shardwright as sw


def back(path) -> dict:
    with sw.open(path) as checkpoint:
        return checkpoint.load()


def test_no_framework_is_imported(tmp_path):
    code = ("import sys, numpy, shardwright as sw; sw.save(sys.argv[1], {'a': numpy.zeros(3)}); sw.open(sys.argv[1]).load();"
            "print([m for m in ('torch', 'jax', 'keras', 'tensorflow', 'h5py', 'safetensors', 'tqdm') if m in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code, str(tmp_path / "a.safetensors")], text=True).strip() == "[]"


TORCH_TYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
               "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64"]


@pytest.mark.parametrize("name", TORCH_TYPES)
def test_torch_types(tmp_path, rng, name):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file
    raw = torch.from_numpy(rng.integers(0, 2 if name == "bool" else 100, (6, 40)).astype("u1"))
    tensor = (raw > 0) if name == "bool" else raw.view(getattr(torch, name))
    values = {"whole": tensor, "part": tensor[1::2, :2], "transposed": tensor.T, "one": tensor[0, 0], "none": tensor[:0]}
    sw.save(tmp_path / "a.safetensors", values)
    loaded, theirs = back(tmp_path / "a.safetensors"), load_file(tmp_path / "a.safetensors") if name != "float8_e8m0fnu" else None
    for key, value in values.items():
        expected = value.contiguous()
        assert loaded[key].shape == tuple(expected.shape) and loaded[key].dtype.name == name
        raw_bytes = bytes(expected.view(-1).view(torch.uint8).numpy()) if expected.numel() and expected.ndim else None
        if raw_bytes is not None:
            assert loaded[key].tobytes() == raw_bytes
            if theirs is not None:
                assert theirs[key].dtype == value.dtype and bytes(theirs[key].contiguous().view(-1).view(torch.uint8).numpy()) == raw_bytes


def test_torch_parameters_and_odd_ones(tmp_path):
    torch = pytest.importorskip("torch")
    z = torch.complex(torch.arange(4.0), torch.ones(4))
    values = {"parameter": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)), "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
              "conjugate": z.conj(), "negative": z.conj().imag}
    sw.save(tmp_path / "a.safetensors", values)
    loaded = back(tmp_path / "a.safetensors")
    for name, value in values.items():
        assert np.array_equal(loaded[name], value.detach().resolve_conj().resolve_neg().numpy())
    for name, value in {"sparse": torch.eye(3).to_sparse(), "meta": torch.empty(3, device="meta"), "complex128": torch.zeros(2, dtype=torch.complex128),  # not in safetensors
                        "quantized": torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8)}.items():
        with pytest.raises(sw.UnsupportedError) as raised:
            sw.save(tmp_path / "b.safetensors", {name: value})
        assert raised.value.tensor == name


def test_torch_float4_counts_elements(tmp_path):
    torch = pytest.importorskip("torch")
    packed = torch.arange(12, dtype=torch.uint8).reshape(3, 4).view(torch.float4_e2m1fn_x2)
    sw.save(tmp_path / "a.safetensors", {"w": packed})
    tensor = sw.open(tmp_path / "a.safetensors")["w"]
    assert tensor.shape == (3, 8) and tensor.dtype == ml_dtypes.float4_e2m1fn and tensor.nbytes == 12
    assert tensor[1].view("u1").tolist() == [4, 0, 5, 0, 6, 0, 7, 0]


def test_load_into_torch(tmp_path, rng):
    torch = pytest.importorskip("torch")
    arrays = {"a": rng.standard_normal((4, 5)).astype("f4"), "b": rng.standard_normal(9).astype(ml_dtypes.bfloat16)}
    sw.save(tmp_path / "a.safetensors", arrays)
    out = {"a": torch.nn.Parameter(torch.zeros(5, 4).T), "b": torch.zeros(9, dtype=torch.bfloat16)}
    sw.open(tmp_path / "a.safetensors").load(out=out)
    assert np.array_equal(out["a"].detach().numpy(), arrays["a"])
    assert bytes(out["b"].view(torch.uint8).numpy()) == arrays["b"].tobytes()
    with pytest.raises(sw.InvalidArgumentError):
        sw.open(tmp_path / "a.safetensors").load(["a"], {"a": torch.zeros(4, 5, device="meta")})


JAX = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np, shardwright as sw
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
values, expected = {}, {}
for dtype in (jnp.float32, jnp.bfloat16, jnp.float8_e4m3fn, jnp.int8, jnp.bool_):
    host = np.arange(64 * 32).reshape(64, 32) % 7
    for spec in (P(), P("a"), P(None, "b"), P("b", "a"), P(("a", "b"),)):
        name = f"{np.dtype(dtype).name} {spec}"
        values[name] = jax.device_put(jnp.asarray(host, dtype), NamedSharding(mesh, spec))
        expected[name] = host.astype(dtype)
values["scalar"], expected["scalar"] = jnp.float32(2.5), np.float32(2.5)
values["float4"], expected["float4"] = jnp.ones((2, 4), jnp.float4_e2m1fn), np.ones((2, 4), jnp.float4_e2m1fn)
sw.save(sys.argv[1], values)
# Nothing was gathered, and kept by the array, for the sake of saving it.
assert all(v._npy_value is None for n, v in values.items() if "PartitionSpec()" not in n and n not in ("scalar", "float4")), "gathered"
loaded = sw.open(sys.argv[1]).load()
for name in values:
    assert loaded[name].dtype == expected[name].dtype and loaded[name].tobytes() == expected[name].tobytes(), name
a = sw.open(sys.argv[1]).load(["float32 " + str(P())])["float32 " + str(P())]
assert jax.device_put(a, jax.devices()[0]).unsafe_buffer_pointer() == a.ctypes.data, "JAX takes aligned memory over without a copy"
for bad in (jnp.ones(2, jnp.int4), jax.random.key(0)):
    try:
        sw.save(sys.argv[1] + "x", {"bad": bad})
    except sw.UnsupportedError as error:
        assert error.tensor == "bad"
    else:
        raise AssertionError("saved")
print("ok")
"""


def test_jax_arrays(tmp_path):
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, "-c", JAX, str(tmp_path / "a.safetensors")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "ok", done.stderr[-3000:]


def test_what_torch_has_and_checkpoints_have_not(tmp_path):
    torch = pytest.importorskip("torch")

    class ByDlpackAlone:
        """bfloat16 by a protocol that NumPy does not take it through."""

        def __dlpack__(self, **options):
            return torch.ones(2, dtype=torch.bfloat16).__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)
    for value in (torch.ones(3, dtype=torch.complex32), torch.empty(3, dtype=torch.bits8), ByDlpackAlone()):
        with pytest.raises(sw.UnsupportedError) as raised:
            sw.save(tmp_path / "a.safetensors", {"bad": value})
        assert raised.value.tensor == "bad"
    with pytest.raises(sw.InvalidArgumentError):
        sw.save(tmp_path / "a.safetensors", {"a": np.zeros(1)}, memory=torch.tensor(2e9))
