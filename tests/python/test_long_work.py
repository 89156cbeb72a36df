"""Long work: says how far it is, lets other threads run, and stops when it is told to, leaving nothing behind."""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import shardwright as sw

SLOW = 40  # tensors that a slow producer makes, of 1 MB each


def slow_tensors(seconds=0.02):
    def make():
        time.sleep(seconds)
        return np.ones(250_000, "f4")
    return [(f"t{i}", (250_000,), "float32", make) for i in range(SLOW)]


def test_a_callback_is_told(tmp_path):
    seen = []
    sw.save(tmp_path / "m", slow_tensors(), max_shard_size="10MB", progress=lambda *args: seen.append(args))
    copies = [(done, total) for phase, done, total in seen if phase == "copy"]
    assert len(copies) >= 3 and {total for _, total in copies} == {SLOW * 1_000_000}
    assert [done for done, _ in copies] == sorted(done for done, _ in copies) and copies[-1][0] <= SLOW * 1_000_000
    assert seen[-1][0] == "sync"


@pytest.mark.parametrize("what", ["false", "raises"])
def test_a_callback_stops_it(tmp_path, what):
    sw.save(tmp_path / "m", {"old": np.ones(3)})
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}

    def progress(phase, done, total):
        if done > 5_000_000:
            if what == "raises":
                raise LookupError("enough")
            return False
    with pytest.raises(LookupError if what == "raises" else sw.AbortedError):
        sw.save(tmp_path / "m", slow_tensors(), overwrite=True, progress=progress)
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before and len(list(tmp_path.iterdir())) == 1


def test_a_bar_is_filled(tmp_path):
    from tqdm import tqdm
    with open(os.devnull, "w") as nowhere, tqdm(file=nowhere) as bar:
        sw.save(tmp_path / "m", slow_tensors(0.005), progress=bar)
        assert bar.total == SLOW * 1_000_000 == bar.n
        sw.hash(tmp_path / "m", progress=bar)
        assert not bar.disable


def test_a_bar_of_ones_own_only_goes_forward(tmp_path):
    class Bar:
        def __init__(self):
            self.n, self.total, self.steps = 0, None, []

        def update(self, n=1):
            self.n += n
            self.steps.append((n, self.n, self.total))

        def refresh(self):
            pass
    bar = Bar()
    sw.save(tmp_path / "m", slow_tensors(), progress=bar)
    assert len(bar.steps) >= 3 and all(0 <= step and n <= total for step, n, total in bar.steps) and bar.n == bar.total == SLOW * 1_000_000


def test_true_shows_a_bar(tmp_path, capfd):
    sw.save(tmp_path / "m", slow_tensors(0.01), progress=True)
    assert "100%" in capfd.readouterr().err
    with pytest.raises(TypeError):
        sw.hash(tmp_path / "m", progress="yes")


def test_other_threads_run_meanwhile(tmp_path):
    """A pure Python thread gets on while the engine works: the GIL is not held."""
    sw.save(tmp_path / "m", {f"t{i}": np.zeros(8_000_000, "f4") for i in range(8)})
    longest, last, stop = 0.0, time.perf_counter(), threading.Event()

    def tick():
        nonlocal longest, last
        while not stop.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    for _ in range(3):
        sw.hash(tmp_path / "m")
    took = time.perf_counter() - begin
    stop.set()
    thread.join()
    assert longest < max(took / 2, 0.02)


def test_many_threads_read_one_checkpoint(tmp_path, rng):
    array = rng.standard_normal((200, 300))
    sw.save(tmp_path / "a.safetensors", {"w": array})
    checkpoint, wrong = sw.open(tmp_path / "a.safetensors"), []

    def read(seed):
        local = np.random.default_rng(seed)
        for _ in range(50):
            a, b = sorted(local.integers(0, 201, 2))
            if not np.array_equal(checkpoint["w"][a:b, ::3], array[a:b, ::3]):
                wrong.append((a, b))
    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


INTERRUPTED = """
import sys, time, numpy as np, shardwright as sw
def make():
    time.sleep(0.02)
    return np.ones(250_000, "f4")
def begun(phase, done, total):
    if done: print("begun", flush=True)
job, path = sys.argv[1:]
try:
    if job == "save":
        sw.save(path + "/out", [(f"t{i}", (250_000,), "float32", make) for i in range(1000)], progress=begun)
    else:
        sw.copy(path + "/source", path + "/out", progress=begun, memory="4MiB", threads=1)
except KeyboardInterrupt:
    print("KeyboardInterrupt")
"""


@pytest.mark.parametrize("job", ["save", "copy"])
def test_ctrl_c(tmp_path, job):
    if job == "copy":
        sparse = tmp_path / "source"
        sparse.mkdir()
        header = b'{"w":{"dtype":"U8","shape":[20000000000],"data_offsets":[0,20000000000]}}'
        with open(sparse / "model.safetensors", "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + 20_000_000_000)
        if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < 21_000_000_000:
            pytest.skip("the copy would be refused for want of room")
    left = {path.name for path in tmp_path.iterdir()}
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, job, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out.splitlines()[-1:] == ["KeyboardInterrupt"], err[-2000:]
    assert process.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == left
