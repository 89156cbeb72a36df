"""The C++ example: ranks that each load a part of MiniLM compute what the whole weights give; NumPy agrees."""
import re
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

RANKS = 4
BLOCK = "encoder.layer.0."


def example(shardwright, name: str):
    path = shardwright.path.parent / name
    if not path.is_file():
        pytest.fail(f"{path} is not built: `make test-kill` builds all")
    return path


def check(outputs: list[str], weights: dict) -> None:
    text = "".join(outputs)
    read = {int(rank): int(count) for rank, count in re.findall(rf"rank (\d) of {RANKS} read (\d+) bytes", text)}
    up, bias, down = (weights[BLOCK + name].nbytes for name in ("intermediate.dense.weight", "intermediate.dense.bias", "output.dense.weight"))
    header = 200_000  # of the file
    assert sorted(read) == list(range(RANKS)) and all(up + bias + down <= RANKS * count for count in read.values())
    # Its rows of the first; the columns of the second lie closer than 64 KiB, so that what is between them is read too.
    assert all(count <= (up + bias) // RANKS + down + header for count in read.values()), read
    largest, difference = re.search(r"largest value ([0-9.]+), largest difference ([0-9.e+-]+)", text).groups()
    # By other hands: the same product of the same weights.
    x = np.sin(np.arange(384.0))
    hidden = weights[BLOCK + "intermediate.dense.weight"].astype("f8") @ x + weights[BLOCK + "intermediate.dense.bias"]
    from scipy.special import erf
    hidden = 0.5 * hidden * (1 + erf(hidden / np.sqrt(2)))
    assert float(largest) == pytest.approx(np.abs(weights[BLOCK + "output.dense.weight"].astype("f8") @ hidden).max(), rel=1e-5)
    assert float(difference) < 1e-10


@pytest.fixture(scope="module")
def weights(minilm) -> dict:
    return load_file(minilm / "model.safetensors")


def test_ranks_that_meet_in_a_directory(shardwright, minilm, weights, tmp_path):
    program = example(shardwright, "tensor_parallel")
    ranks = [subprocess.Popen([program, minilm, tmp_path / "meet", str(rank), str(RANKS)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(RANKS)]
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS, outputs
    check(outputs, weights)


def test_ranks_of_mpi(shardwright, minilm, weights):
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun here")
    program = example(shardwright, "tensor_parallel_mpi")
    done = subprocess.run(["mpirun", "-n", str(RANKS), "--allow-run-as-root", "--oversubscribe", program, minilm], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    check([done.stdout], weights)
