"""A copy stopped at every change it makes to the disk, counted from outside (killpoint.c), and read by every reader there is.

What the promise says each may see: a new name: nothing, or all of it. In place: our reader old or new, whole; others old, new, or an
error; never a mixture. After the next command on the place: old or new for everyone, and nothing temporary left.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy
import pytest
from safetensors.numpy import load_file, save_file

KILLED = -signal.SIGKILL


# ---- models: a real one that transformers opens, and one that Keras opens

@pytest.fixture(scope="module")
def bert():
    """Two tiny BERTs of one shape, other values: (old, new)."""
    import torch
    import transformers

    config = transformers.BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
                                     max_position_embeddings=12)
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(transformers.BertModel(config))
    return models


@pytest.fixture(scope="module")
def keras_models():
    import keras

    def make(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(20, name="a"), keras.layers.Dense(3, name="b")])
        return model

    return make(1), make(2)


def values(tensors):
    return {name: numpy.asarray(value).tobytes() for name, value in tensors.items()}


def files_below(directory):
    return sorted(str(p.relative_to(directory)) for p in pathlib.Path(directory).rglob("*") if p.is_file())


# ---- readers: what they see is a dict of bytes, or None for "cannot be read"

def read_ours(shardwright, path):
    """By content hash; this command also recovers."""
    done = subprocess.run([shardwright.path, "hash", path, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        assert done.returncode in (3, 4, 6), done.stderr
        return None
    import json

    return {row["name"]: row["hash"] for row in json.loads(done.stdout)}


def read_transformers(path):
    """transformers prefers the single file, and reads what the index names."""
    import transformers

    try:
        model, info = transformers.BertModel.from_pretrained(path, output_loading_info=True)
    except Exception:
        return None
    assert not info["missing_keys"], "transformers filled in missing weights"
    return values(model.state_dict())


def read_hub(path):
    """The hub's loader prefers the index."""
    import json

    index = pathlib.Path(path) / "model.safetensors.index.json"
    try:
        if index.exists():
            weight_map = json.loads(index.read_text())["weight_map"]
            tensors = {}
            for file in sorted(set(weight_map.values())):
                tensors |= {k: v for k, v in load_file(str(pathlib.Path(path) / file)).items() if weight_map.get(k) == file}
            return values(tensors) if set(tensors) == set(weight_map) else None
        return values(load_file(str(pathlib.Path(path) / "model.safetensors")))
    except Exception:
        return None


def reads_keras(model, path):
    try:
        model.load_weights(str(path))
    except Exception:
        return None
    return [w.tobytes() for w in model.get_weights()]


class Sweep:
    """Runs one copy, whole, then stopped before each counted call."""

    def __init__(self, shardwright, library, tmp_path, setup, arguments):
        self.shardwright, self.library, self.tmp_path = shardwright, library, tmp_path
        self.setup, self.arguments = setup, arguments
        self.trace = tmp_path / "trace"

    def fresh(self):
        work = self.tmp_path / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        self.setup(work)
        return work

    def run(self, work, **more):
        environment = os.environ | {"LD_PRELOAD": str(self.library), "KILLPOINT_ROOT": str(work.resolve())} | more
        command = [str(self.shardwright.path), *[a.format(work=work) for a in self.arguments]]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)

    def points(self):
        work = self.fresh()
        self.trace.unlink(missing_ok=True)
        done = self.run(work, KILLPOINT_TRACE=str(self.trace))
        assert done.returncode == 0, done.stderr
        return work, [line.split("\t") for line in self.trace.read_text().splitlines()]

    def stopped(self, at):
        work = self.fresh()
        done = self.run(work, KILLPOINT_AT=str(at))
        assert done.returncode in (KILLED, 0), done.stderr  # threads: the count can differ by a few
        return work


@pytest.fixture
def sweep(shardwright, tmp_path):
    library = shardwright.path.parent / "libkillpoint.so"
    assert library.is_file(), f"{library} is not there: build the target killpoint"
    return lambda setup, arguments: Sweep(shardwright, library, tmp_path, setup, arguments)


def check_order_of_syncs(trace, target):
    """SIGKILL leaves the page cache alone, so what a power cut would lose is seen in the order of calls: every file is synced after its
    last write and before its rename; the journal, and the directory that holds it, before anything visible changes."""
    dirty, first_visible, journal_synced, directory_synced = {}, None, None, None
    for number, call, path, *second in trace:
        n = int(number)
        name = os.path.basename(path)
        if call in ("write", "pwrite", "pwritev", "create", "ftruncate", "fallocate"):
            dirty[path] = n
        elif call in ("fsync", "fdatasync"):
            dirty.pop(path, None)
            if "journal" in name and journal_synced is None:
                journal_synced = n
            if os.path.realpath(path) == os.path.realpath(target) and journal_synced:
                directory_synced = directory_synced or n
        elif call.startswith("rename"):
            assert path not in dirty, f"{path} is renamed at {n} before its bytes of {dirty.get(path)} are synced"
            if not os.path.basename(second[0]).startswith(".shardwright") and first_visible is None:
                first_visible = n
        elif call.startswith("unlink") and not name.startswith((".shardwright", "lock")) and ".shardwright-" not in path:
            first_visible = first_visible or n
    return first_visible, journal_synced, directory_synced


def leftovers(work):
    return [p for p in files_below(work) if ".shardwright-" in p]


def seen_by_ours(shardwright, path):
    seen = read_ours(shardwright, str(path))
    assert seen is not None
    return seen


# ---- to a new name

def test_new_directory_appears_whole_or_not(sweep, shardwright, bert, tmp_path):
    source = tmp_path / "source"
    bert[1].save_pretrained(source)
    new = values(bert[1].state_dict())
    run = sweep(lambda work: None, ["copy", str(source), "{work}/out", "--max-shard-size", "4KB"])
    _, trace = run.points()
    visible, _, _ = check_order_of_syncs(trace, run.tmp_path / "work")
    assert visible is not None
    states = set()
    for at in range(1, len(trace) + 1):
        work = run.stopped(at)
        seen = read_transformers(work / "out")
        states.add(seen is not None)
        assert seen in (None, new), f"stopped at {trace[at - 1]}"
        assert seen == read_hub(work / "out") or seen is None
        assert run.run(work).returncode in ((0, 9) if seen else (0,))  # again: it is there, or it is made
        assert read_transformers(work / "out") == new
        assert not leftovers(work), f"stopped at {trace[at - 1]}"
    assert states == {False, True}


@pytest.mark.parametrize("name", ["out.safetensors", "out.weights.h5", "out.weights.json"])
def test_new_file_appears_whole_or_not(sweep, shardwright, tmp_path, name):
    source = tmp_path / "source.safetensors"
    save_file({f"t{i}": numpy.arange(i * 100, i * 100 + 50, dtype="float32") for i in range(6)}, source)
    new = seen_by_ours(shardwright, source)
    limit = ["--max-shard-size", "450"] if name.endswith("json") else []
    run = sweep(lambda work: None, ["copy", str(source), "{work}/" + name, *limit])
    _, trace = run.points()
    check_order_of_syncs(trace, run.tmp_path / "work")
    for at in range(1, len(trace) + 1):
        work = run.stopped(at)
        if (work / name).exists():
            assert read_ours(shardwright, work / name) == new, f"stopped at {trace[at - 1]}"
        assert run.run(work).returncode in (0, 9)
        assert read_ours(shardwright, work / name) == new
        assert not leftovers(work), f"stopped at {trace[at - 1]}"


# ---- in place

def replace(sweep, shardwright, old_setup, arguments, readers, old, new):
    """The sweep of a replacement: readers are run before and after recovery."""
    run = sweep(old_setup, arguments)
    done_work, trace = run.points()
    target = done_work / "model"
    new_hashes = seen_by_ours(shardwright, target)
    visible, journal, directory = check_order_of_syncs(trace, target)
    assert journal and directory and journal < directory < visible, "the journal must be durable before the first visible change"
    old_hashes = seen_by_ours(shardwright, run.fresh() / "model")
    seen_states = set()
    for at in range(1, len(trace) + 1):
        work = run.stopped(at)
        for reader in readers:
            seen = reader(work / "model")
            assert seen in (None, old, new), f"{reader.__name__} reads a mixture, stopped at {trace[at - 1]}"
        ours = read_ours(shardwright, str(work / "model"))
        assert ours in (old_hashes, new_hashes), f"stopped at {trace[at - 1]}"
        seen_states.add(ours == new_hashes)
        whole = new if ours == new_hashes else old
        for reader in readers:
            assert reader(work / "model") == whole, f"{reader.__name__} after recovery, stopped at {trace[at - 1]}"
        assert not leftovers(work), f"stopped at {trace[at - 1]}"
    assert old_hashes == new_hashes or seen_states == {False, True}


def test_sharded_set_is_replaced_by_one_of_the_same_names(sweep, shardwright, bert, tmp_path):
    bert[1].save_pretrained(tmp_path / "new")
    old, new = (values(m.state_dict()) for m in bert)
    replace(sweep, shardwright, lambda work: bert[0].save_pretrained(work / "model", max_shard_size="4KB"),
            ["copy", str(tmp_path / "new"), "{work}/model", "--max-shard-size", "4KB", "--overwrite"], [read_transformers, read_hub], old, new)


def test_single_file_becomes_sharded_and_back_in_place(sweep, shardwright, bert):
    old = values(bert[0].state_dict())
    replace(sweep, shardwright, lambda work: bert[0].save_pretrained(work / "model"),
            ["copy", "{work}/model", "{work}/model", "--max-shard-size", "4KB"], [read_transformers, read_hub], old, old)
    replace(sweep, shardwright, lambda work: bert[0].save_pretrained(work / "model", max_shard_size="4KB"),
            ["copy", "{work}/model", "{work}/model"], [read_transformers, read_hub], old, old)


def test_keras_shards_are_replaced(sweep, shardwright, keras_models, tmp_path):
    old_model, new_model = keras_models
    old, new = ([w.tobytes() for w in m.get_weights()] for m in keras_models)
    (tmp_path / "new").mkdir()
    new_model.save_weights(tmp_path / "new" / "m.weights.json", max_shard_size=330 / 2**30)
    reader_model = type(old_model).from_config(old_model.get_config())

    def setup(work):
        old_model.save_weights(work / "m.weights.json", max_shard_size=330 / 2**30)

    run = sweep(setup, ["copy", str(tmp_path / "new" / "m.weights.json"), "{work}/m.weights.json", "--max-shard-size", "330", "--overwrite"])
    _, trace = run.points()
    for at in range(1, len(trace) + 1):
        work = run.stopped(at)
        assert reads_keras(reader_model, work / "m.weights.json") in (None, old, new), f"stopped at {trace[at - 1]}"
        assert read_ours(shardwright, str(work / "m.weights.json")) is not None
        assert reads_keras(reader_model, work / "m.weights.json") in (old, new), f"after recovery, stopped at {trace[at - 1]}"
        assert not leftovers(work)


# ---- other faults

def test_failing_calls_leave_the_old_set_or_the_new_one(sweep, shardwright, bert, tmp_path):
    """EIO and ENOSPC at every call: an error with its exit code, never a mixture, and nothing temporary after the next command."""
    bert[1].save_pretrained(tmp_path / "new")
    old, new = (values(m.state_dict()) for m in bert)
    run = sweep(lambda work: bert[0].save_pretrained(work / "model", max_shard_size="4KB"),
                ["copy", str(tmp_path / "new"), "{work}/model", "--max-shard-size", "4KB", "--overwrite"])
    _, trace = run.points()
    for number, codes in ((5, (0, 5)), (28, (0, 8))):
        for at in range(1, len(trace) + 1):
            work = run.fresh()
            done = run.run(work, KILLPOINT_AT=str(at), KILLPOINT_ERRNO=str(number))
            assert done.returncode in codes, f"{trace[at - 1]}: {done.returncode} {done.stderr}"
            assert read_hub(work / "model") in (None, old, new), trace[at - 1]
            assert read_ours(shardwright, str(work / "model")) is not None, trace[at - 1]
            assert read_hub(work / "model") in (old, new), trace[at - 1]
            assert not leftovers(work), trace[at - 1]


def test_short_reads_and_writes_change_nothing(sweep, shardwright, bert, tmp_path):
    bert[1].save_pretrained(tmp_path / "new")
    run = sweep(lambda work: None, ["copy", str(tmp_path / "new"), "{work}/out", "--max-shard-size", "4KB"])
    done_work, _ = run.points()
    expected = {p: (done_work / "out" / p).read_bytes() for p in files_below(done_work / "out")}
    assert expected
    work = run.fresh()
    done = run.run(work, KILLPOINT_SHORT="1")
    assert done.returncode == 0, done.stderr
    assert {p: (work / "out" / p).read_bytes() for p in files_below(work / "out")} == expected


def test_interrupt_removes_temporary_files(shardwright, tmp_path):
    """SIGINT in the middle of a copy of 4 GB of zeros."""
    import json
    import struct

    header = json.dumps({"w": {"dtype": "U8", "shape": [2**32], "data_offsets": [0, 2**32]}}).encode()
    source = tmp_path / "big.safetensors"
    with open(source, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**32)
    process = subprocess.Popen([shardwright.path, "copy", source, tmp_path / "out.safetensors"], stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 30
    while time.time() < deadline and not list(tmp_path.glob(".*shardwright*")):
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.safetensors"], errors


def test_full_disk(shardwright, tmp_path):
    """A small tmpfs: refused before the first write when the size is known; what was there stays."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode != 0:
        pytest.fail("mounting a tmpfs needs root")
    try:
        small = {"w": numpy.ones(1000, dtype="float32")}
        save_file(small, tmp_path / "small.safetensors")
        save_file({"w": numpy.ones(2**20, dtype="float32")}, tmp_path / "big.safetensors")
        shardwright.copy(tmp_path / "small.safetensors", disk / "m.safetensors")
        done = shardwright.run("copy", tmp_path / "big.safetensors", disk / "m.safetensors", "--overwrite", code=8)
        assert "free" in done.stderr
        assert files_below(disk) == ["m.safetensors"]
        assert numpy.array_equal(load_file(disk / "m.safetensors")["w"], small["w"])
    finally:
        subprocess.run(["umount", disk], check=True)
