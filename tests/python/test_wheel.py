"""The wheel, made self-contained by auditwheel, in a new environment outside the tree: imports, has types, and makes round trips."""
import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

pytestmark = pytest.mark.alone
ROOT = pathlib.Path(__file__).resolve().parents[2]

ROUND_TRIP = """
import sys, pathlib, numpy as np, ml_dtypes, shardwright as sw
assert str(sys.argv[2]) in sw.__file__, sw.__file__
folder = pathlib.Path(sys.argv[1])
arrays = {"layers/dense/vars/0": np.arange(12, dtype="f4").reshape(3, 4), "layers/dense/vars/1": np.ones(4).astype(ml_dtypes.bfloat16)}
for target in ("a.safetensors", "b", "c.weights.h5", "d.weights.json"):
    sw.save(folder / target, arrays)
    loaded = sw.open(folder / target).load()
    assert all(loaded[name].tobytes() == array.tobytes() for name, array in arrays.items()), target
sw.copy(folder / "a.safetensors", folder / "e", max_shard_size="40B")
assert sw.diff(folder / "a.safetensors", folder / "e") == [] and sw.verify(folder / "e", full=True)
try:
    sw.open(folder / "nothing")
except FileNotFoundError as error:
    assert isinstance(error, sw.NotFoundError)
print("ok", sw.__version__)
"""


def call(*command, **kwargs) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    # In the tree of `make python`, where the library is compiled already.
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
         f"--config-settings=build-dir={ROOT / 'build'}", "-w", folder / "plain", ROOT)
    plain, = (folder / "plain").glob("*.whl")
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    call(sys.executable, "-m", "auditwheel", "repair", "-w", folder / "repaired", plain, env={**os.environ, "PATH": path})
    repaired, = (folder / "repaired").glob("*.whl")
    return repaired


def test_wheel_is_self_contained(wheel):
    assert "manylinux" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"shardwright/__init__.py", "shardwright/py.typed", "shardwright/_core.pyi"} <= set(names)
    assert any("libhdf5" in name for name in names) and not any(name.startswith(("tests", "src", "build")) for name in names)


def test_wheel_in_a_new_environment(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    call(python, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index", wheel)
    site = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # What the package depends on is taken from where the tests run; h5py too, which brings another HDF5.
    for name in ("numpy", "numpy.libs", "ml_dtypes", "h5py", "h5py.libs"):
        module = __import__(name.split(".")[0])
        source = pathlib.Path(module.__file__).parent.parent / name
        if source.exists():
            (pathlib.Path(site) / name).symlink_to(source)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LD_"))}
    (tmp_path / "data").mkdir()
    assert call(python, "-c", ROUND_TRIP, tmp_path / "data", tmp_path / "env", cwd=tmp_path, env=clean).startswith("ok ")
    both = "import h5py, shardwright, sys; f = h5py.File(sys.argv[1]); print(f['layers/dense/vars/0'][2, 3], shardwright.open(sys.argv[1])['layers/dense/vars/0'][2, 3])"
    for order in (both, both.replace("h5py, shardwright", "shardwright, h5py")):
        assert call(python, "-c", order, tmp_path / "data" / "c.weights.h5", cwd=tmp_path, env=clean).split() == ["11.0", "11.0"]
