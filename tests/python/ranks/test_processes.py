"""Plain processes that meet in a directory: they know their number, speak, save together, and learn of one another's failures."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import shardwright as sw

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from job import Job, run  # noqa: E402

MEET = """
import os, sys, time
import numpy as np, shardwright as sw
index, count, at = int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]
ranks = sw.join_ranks(at + "/meet", index, count, timeout=30)
"""
# A model of which each process holds its rows; what is not split, all have.
HELD = """
def held(index, count):
    whole = {"w": np.arange(48 * 1000, dtype="f4").reshape(48, 1000), "columns": np.arange(24 * 480, dtype="f8").reshape(24, 480),
             "bias": np.arange(7, dtype="f2"), "scalar": np.array(3)}
    rows, columns = 48 // count, 480 // count
    parts = {"w": ((index * rows, 0), whole["w"][index * rows:(index + 1) * rows]),
             "columns": ((0, index * columns), whole["columns"][:, index * columns:(index + 1) * columns])}
    return whole, {name: sw.Sharded(a.shape, a.dtype, [parts[name]]) if name in parts else a for name, a in whole.items()}
"""


def test_alone():
    assert (sw.get_process_index(), sw.get_process_count()) == (0, 1)
    assert type(sw.get_process_index()) is int


def test_processes_know_their_number_and_speak(tmp_path):
    code = MEET + """
assert ranks.all_gather(b"x" * index) == [b"x" * i for i in range(count)]
ranks.barrier()
print(sw.get_process_index(), sw.get_process_count(), type(sw.get_process_index()) is int, ranks)
from job import speaks
speaks(ranks)
try:
    sw.join_ranks(at + "/elsewhere", 1, 2, timeout=0.1)
except sw.UnavailableError as error:
    assert "rank 0 did not come in time" in str(error) and sw.get_process_count() == 1
"""
    assert run(3, code, AT=tmp_path) == [f"{i} 3 True <process {i} of 3>" for i in range(3)]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
def test_mpirun_says_which_process_this_is(tmp_path):
    # Each says it in a file: mpirun may mix what they print.
    code = """
import sys, shardwright as sw
ranks = sw.join_ranks(sys.argv[1])
ranks.barrier()
open(f"{sys.argv[2]}/{ranks.index}", "w").write(f"{ranks.index} {sw.get_process_count()}")
"""
    (meet := tmp_path / "meet").mkdir()
    (said := tmp_path / "said").mkdir()
    subprocess.run(["mpirun", "-n", "4", "--allow-run-as-root", "--oversubscribe", sys.executable, "-c", code, str(meet), str(said)],
                   capture_output=True, text=True, timeout=100, check=True)
    assert {path.name: path.read_text() for path in said.iterdir()} == {f"{i}": f"{i} 4" for i in range(4)}


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
def test_relayout_and_save_under_mpirun(tmp_path):
    """JAX connects the processes, the directory carries what they move: as the page on layouts says."""
    code = """
import sys
import jax, numpy as np, shardwright as sw, shardwright.jax as sj
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
at, address = sys.argv[1:]
ranks = sw.join_ranks(at + "/meet")
jax.distributed.initialize(address, ranks.count, ranks.index)
assert (sw.get_process_index(), sw.get_process_count()) == (jax.process_index(), jax.process_count()) == (ranks.index, 4)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
value = np.arange(64 * 4096, dtype="f4").reshape(64, 4096)
array = jax.make_array_from_callback(value.shape, NamedSharding(mesh, P("a", "b")), lambda index: value[index])
moved = sj.relayout(array, NamedSharding(mesh, P(None, ("b", "a"))), memory="64KiB")
assert all(np.array_equal(shard.data, value[shard.index]) for shard in moved.addressable_shards)
sj.save(at + "/together.safetensors", {"w": moved})
"""
    value = np.arange(64 * 4096, dtype="f4").reshape(64, 4096)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    done = subprocess.run(["mpirun", "-n", "4", "--allow-run-as-root", "--oversubscribe", sys.executable, "-c", code, str(tmp_path), address],
                          capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    assert done.returncode == 0, done.stderr[-6000:]
    sw.save(tmp_path / "alone.safetensors", {"w": value})
    assert (tmp_path / "together.safetensors").read_bytes() == (tmp_path / "alone.safetensors").read_bytes()


@pytest.mark.parametrize("target", ["a.safetensors", "hub", "k.weights.h5", "k.weights.json", "a.bin", "offload"])
def test_save_is_that_of_one_process(tmp_path, target):
    code = MEET + HELD + """
shard = int(os.environ["SHARD"]) or None
options = eval(os.environ["OPTIONS"])
summary = sw.save(at + "/together/" + os.environ["TARGET"], held(index, count)[1], ranks=ranks, memory="1MiB", max_shard_size=shard, **options)
print(summary.tensors, summary.bytes_written)
"""
    for where in ("alone", "together"):
        (tmp_path / where).mkdir()
    shard = 100_000 if target in ("hub", "k.weights.json") else 0
    options = {"format": "offload"} if target == "offload" else {} if target == "a.bin" else {"metadata": {"by": "all"}}  # which not all keep
    names: dict = {"np": np, "sw": sw}
    exec(HELD, names)
    alone = sw.save(tmp_path / "alone" / target, names["held"](0, 1)[0], max_shard_size=shard or None, **options)
    assert run(2, code, AT=tmp_path, TARGET=target, SHARD=shard, OPTIONS=options) == [f"{alone.tensors} {alone.bytes_written}"] * 2
    files = {where: {path.relative_to(tmp_path / where): path.read_bytes() for path in (tmp_path / where).rglob("*") if path.is_file()}
             for where in ("alone", "together")}
    assert files["alone"] == files["together"]


def test_weights_of_an_archive(tmp_path):
    """Into .keras: a zip whose checksum no process can make alone."""
    import keras
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, name="d")])
    for where in ("alone", "together"):
        (tmp_path / where).mkdir()
        model.save(tmp_path / where / "m.keras")
    kernel, bias = np.arange(48, dtype="f4").reshape(6, 8), np.ones(8, "f4")
    sw.save(tmp_path / "alone" / "m.keras", {"layers/dense/vars/0": kernel, "layers/dense/vars/1": bias}, overwrite=True)
    code = MEET + """
kernel, bias = np.arange(48, dtype="f4").reshape(6, 8), np.ones(8, "f4")
part = sw.Sharded((6, 8), "float32", [((0, 4 * index), kernel[:, 4 * index:4 * index + 4])])
sw.save(at + "/together/m.keras", {"layers/dense/vars/0": part, "layers/dense/vars/1": bias}, overwrite=True, ranks=ranks)
"""
    run(2, code, AT=tmp_path)
    assert (tmp_path / "together" / "m.keras").read_bytes() == (tmp_path / "alone" / "m.keras").read_bytes()
    again = keras.saving.load_model(tmp_path / "together" / "m.keras")  # zipfile checks the sums
    assert np.array_equal(again.layers[0].kernel, kernel)


def test_process_that_dies_is_named_and_nothing_appears(tmp_path):
    code = MEET + HELD + """
def slow(start, stop):
    if index == 1:
        os.kill(os.getpid(), 9)
    return np.zeros(tuple(b - a for a, b in zip(start, stop)), "f4")
tensors = held(index, count)[1] | {f"made {index}": sw.Producer((100, 100), "float32", box=slow)}
try:
    sw.save(at + "/out", tensors, ranks=ranks)
except sw.UnavailableError as error:
    print(error.message)
"""
    began = time.monotonic()
    with Job(3, code, AT=tmp_path) as job:
        outputs = job.outputs(failing=[1])
    assert outputs[0] == outputs[2] == "rank 1 ended before the work was done"
    assert time.monotonic() - began < 30 and not (tmp_path / "out").exists()


def test_after_a_failure_they_join_anew(tmp_path):
    """In the same directory, though the ranks of before are still held. Until then every call fails as the first did."""
    code = MEET + """
ranks.timeout = 0.5
time.sleep(1.5 * index)
def told(words, attempt):
    try:
        attempt()
    except sw.UnavailableError as error:
        return words in str(error)
said = [told("rank 1 did not answer in time", lambda: sw.save(at + "/out.safetensors", {f"x{index}": np.zeros(3)}, ranks=ranks)) for _ in range(3)]
again = sw.join_ranks(at + "/meet", index, count, timeout=20)
said.append(told("has left these ranks", ranks.barrier))
sw.save(at + "/out.safetensors", {f"x{index}": np.zeros(3)}, ranks=again)
print(said, ranks, again)
"""
    assert run(2, code, AT=tmp_path) == [f"[True, True, True, True] <a process that has left> <process {i} of 2>" for i in range(2)]
    assert sorted(sw.open(tmp_path / "out.safetensors")) == ["x0", "x1"]


def test_what_one_process_cannot_give_is_told_to_all(tmp_path):
    """Before anything is written, and while it is: at once, in its words; the first kind leaves the ranks usable."""
    code = MEET + HELD + """
ranks.timeout = 20
tensors = held(index, count)[1]
def told(words, attempt):
    try:
        attempt()
    except sw.Error as error:
        return words in str(error)
    except ValueError as error:
        return index == 1
def torn(start, stop):
    raise ValueError("the tape is torn")
texts = {"text": np.array(["x"])} if index == 1 else {}
print(told("no type for dtype str", lambda: sw.save(at + "/out", tensors | texts, ranks=ranks)),
      told("a tie is a new name", lambda: sw.save(at + "/out", tensors, ties={"w": "w"} if index == 1 else None, ranks=ranks)),
      told("rank 1 asks for something else", lambda: sw.save(at + f"/out{index}", tensors, ranks=ranks)),
      told("ValueError: the tape is torn", lambda: sw.save(at + "/out", tensors | ({"made": sw.Producer((9,), "float32", box=torn)} if index == 1 else {}), ranks=ranks)))
"""
    began = time.monotonic()
    assert run(2, code, AT=tmp_path) == ["True True True True"] * 2
    assert time.monotonic() - began < 15 and [path.name for path in tmp_path.iterdir()] == ["meet"]


def test_calls_are_one_at_a_time(tmp_path):
    code = MEET + """
def within(start, stop):
    ranks.barrier()
try:
    sw.save(at + "/out", {f"made {index}": sw.Producer((9,), "float32", box=within)}, ranks=ranks)
except sw.InvalidArgumentError as error:
    print("in another call" in str(error))
ranks.barrier()
"""
    assert run(2, code, AT=tmp_path) == ["True"] * 2


def test_fork_is_no_rank(tmp_path):
    code = MEET + """
if os.fork() == 0:
    sys.exit()
os.wait()
ranks.barrier()
time.sleep(0.2)
ranks.barrier()
"""
    run(2, code, AT=tmp_path)


def test_what_the_launcher_says_must_be_numbers(tmp_path, monkeypatch):
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for rank, count in (("x", "2"), ("0", ""), ("-1", "2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", count)
        with pytest.raises(sw.InvalidArgumentError, match="RANK="):
            sw.join_ranks(tmp_path)


def test_any_number_of_seconds_is_a_time(tmp_path):
    ranks = sw.join_ranks(tmp_path, 0, 1, timeout=float("inf"))
    try:
        for seconds in (float("inf"), 1e300, -1, float("nan")):
            ranks.timeout = seconds
            ranks.barrier()
    finally:
        sw.leave_ranks()


def test_interrupt_within_a_store_is_heard():
    """Not an error of the store, though that is where Python happens to be."""
    from shardwright import _core

    def take(key):
        signal.raise_signal(signal.SIGINT)
        return None
    ranks = _core.ranks_of_store(0, 2, lambda key, value: None, take, "c")
    ranks.timeout = 20
    with pytest.raises(KeyboardInterrupt):
        ranks.all_gather(b"")


def test_interrupt_ends_a_wait(tmp_path):
    code = MEET + """
if index == 0:
    print("waiting", flush=True)
    try:
        ranks.barrier()
    except KeyboardInterrupt:
        print("interrupted")
else:
    time.sleep(60)
"""
    with Job(2, code, AT=tmp_path) as job:
        assert job.processes[0].stdout.readline() == "waiting\n"
        time.sleep(0.2)
        began = time.monotonic()
        job.processes[0].send_signal(signal.SIGINT)
        assert job.processes[0].communicate(timeout=20)[0] == "interrupted\n" and time.monotonic() - began < 5
