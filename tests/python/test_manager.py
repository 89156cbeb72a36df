"""shardwright.CheckpointManager: rules, facts beside the tree, conflicts, failures that are told."""
import os
import pathlib
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from trees import same

import shardwright
from shardwright import CheckpointManager


# ---- steps

def test_rules_and_pins(root):
    with CheckpointManager(root, keep_last=2, keep_every=5, best_metric="loss", keep_best=1) as manager:
        for step in range(9):
            manager.save(step, {"a": np.full(3, step)}, metrics={"loss": abs(step - 3)})
            if step == 2:
                manager.wait()
                manager.pin(2)
        manager.wait()
        assert manager.all_steps() == [0, 2, 3, 5, 7, 8] and manager.best() == 3 and manager.latest() == 8
        assert manager.restore("best")["a"].tolist() == [3, 3, 3]
        assert [info.step for info in manager.steps() if info.pinned] == [2]
        manager.unpin(2)
        manager.delete(0)
        with pytest.raises(shardwright.InvalidArgumentError, match="newest"):
            manager.delete(8)
        manager.save(9, {"a": np.ones(3)}, metrics={"loss": 9})
        manager.wait()
        with CheckpointManager(root) as reader:
            assert manager.all_steps() == reader.all_steps() == [3, 5, 8, 9]
            manager.delete(5)
            assert reader.all_steps() == [3, 8, 9]  # what others do is seen at once


def test_metrics_that_are_no_numbers(root):
    with CheckpointManager(root, best_metric="loss", keep_best=1, keep_without_metric=False) as manager:
        for step, loss in enumerate([float("inf"), 2.0, float("nan"), float("inf")]):
            manager.save(step, {"a": np.ones(1)}, metrics={"loss": loss, "other": step})
        manager.wait()
        assert manager.all_steps() == [1, 3] and manager.best() == 1 and manager.metrics(3)["other"] == 3
        with pytest.raises(shardwright.InvalidArgumentError, match="metadata is not JSON"):
            manager.save(9, {"a": np.ones(1)}, metadata={"a": float("nan")})


def test_the_best_stays_whatever_the_rules(root):
    with CheckpointManager(root, keep_last=1, best_metric="accuracy", best_mode="max") as manager:
        for step in range(4):
            manager.save(step, {"a": np.ones(1)}, metrics={} if step == 2 else {"accuracy": -abs(step - 1)})
        manager.wait()
        assert manager.all_steps() == [1, 3]


def test_orbax_names(root):
    with CheckpointManager(root, max_to_keep=2) as manager:
        for step in range(4):
            manager.save(step, {"a": np.ones(1)})
        manager.wait_until_finished()
        assert manager.all_steps() == [2, 3] and manager.latest_step() == 3 and manager.best_step() == 3


def test_any_predicate(root):
    with CheckpointManager(root, keep_if=lambda info: info.metadata.get("good", False)) as manager:
        for step in range(5):
            manager.save(step, {"a": np.ones(1)}, metadata={"good": step in (1, 2)})
        manager.wait()
        assert manager.all_steps() == [1, 2, 4]


@pytest.mark.parametrize("rule", [{"max_to_keep": 0}, {"keep_last": 0}, {"keep_every": 0}, {"keep_interval": 0}, {"keep_best": 0, "best_metric": "a"},
                                  {"keep_best": 1}, {"max_to_keep": -1}, {"max_to_keep": True}, {"hold": "tight"}, {"second": "x"}, {"lower": "y"},
                                  {"best_mode": "auto"}, {"prefix": "a/b"}, {"digits": 99}, {"keep_last": 1.5}, {"keep_every": "3"},
                                  {"keep_interval": float("nan")}, {"keep_interval": float("inf")}, {"keep_interval": 1e30}, {"keep_if": 3},
                                  {"format": "zarr"}, {"format": "x"}, {"item": ""}, {"item": "a/b"}, {"item": "metrics"}, {"item": "commit_success.txt"}])
def test_rules_that_cannot_be_meant(root, rule):
    with pytest.raises(shardwright.InvalidArgumentError):
        CheckpointManager(root, **rule)


@pytest.mark.parametrize("directory", ["", b"/tmp/run", None, 3, "gs://bucket/run", pathlib.Path("s3://bucket/run"), "~/run", "a\0b"])
def test_what_is_no_directory(directory):
    with pytest.raises((shardwright.InvalidArgumentError, shardwright.UnsupportedError), match=r"director|expanded"):
        CheckpointManager(directory)


@pytest.mark.parametrize("given, said", [
    ({"metrics": {"fine": 1, "l": None}}, "the metric 'l'"), ({"metrics": {"l": np.ones(2)}}, "the metric 'l'"), ({"metrics": {"l": "1"}}, "the metric 'l'"),
    ({"metrics": [1]}, "metrics are"), ({"metadata": [1]}, "metadata is a dict"), ({"metadata": {"a": 2**100}}, "too large"),
    ({"metadata": {"a": {1: 2}}}, "no text"), ({"metadata": {"a": "\udc80"}}, "surrogate"), ({"metadata": {"a": float("nan")}}, "not JSON"),
    ({"iterator_state": {1: 2}}, "no text"), ({"iterator_state": "\udc80"}, "no Unicode"), ({"iterator_state": object()}, "not JSON"),
    ({"items": {"commit_success.txt": {"a": 1}}}, "called so"), ({"items": {"_CHECKPOINT_METADATA": {"a": 1}}}, "called so"),
    ({"items": {"shardwright.manifest.json": {"a": 1}}}, "called so"), ({"items": {"a": "text"}}, "'a' is no tree"), ({"items": [1]}, "dict of trees")])
def test_what_a_step_cannot_say(root, given, said):
    with CheckpointManager(root) as manager:
        with pytest.raises(shardwright.InvalidArgumentError, match=said):
            manager.save(1, {"a": np.ones(1)}, **given)
        assert manager.latest() is None


def test_facts_come_back_as_they_were(root):
    states = ['{"a": 1}', b'{"a": 1}', b"\xff\0", "", b"", {"a": [1, None]}, [2], 0, False, "text"]
    metrics = {"up": float("inf"), "down": -float("inf"), "one": 1.5}
    with CheckpointManager(root) as manager:
        for step, state in enumerate(states):
            manager.save(step, {"a": np.ones(1)}, iterator_state=state, metrics=metrics, metadata={"n": 2**64 - 1, "m": -2**63}, items={"more": {1: ("x",)}})
        manager.wait()
        for step, state in enumerate(states):
            same(manager.iterator_state(step), state)
        assert manager.metrics() == metrics and manager.metadata() == {"n": 2**64 - 1, "m": -2**63}
        assert manager.iterator_state(1, every=True) == [states[1]]
        assert manager.restore(item="more") == {1: ("x",)}



def test_a_step_that_broke_is_in_nobodys_way(tmp_path):
    def train(to):
        with CheckpointManager(tmp_path / "run") as manager:
            latest = manager.latest()
            for step in range(0 if latest is None else latest + 1, to):
                manager.save(step, {"w": np.full(3, step)})

    train(3)
    os.truncate(tmp_path / "run" / "2" / "state" / "_METADATA", 3)
    with pytest.warns(UserWarning, match="2"):
        train(4)
    with CheckpointManager(tmp_path / "run") as manager:
        assert [info.step for info in manager.steps() if info.complete] == [0, 1, 2, 3]
        assert list(manager.restore(2)["w"]) == [2, 2, 2]


def test_never_silently(root):
    with CheckpointManager(root) as manager:
        manager.save(5, {"a": np.ones(1)})
        with pytest.raises(shardwright.AlreadyExistsError, match="step 5 is there already"):
            manager.save(5, {"a": np.zeros(1)})
        with pytest.raises(shardwright.AlreadyExistsError, match="later step"):
            manager.save(4, {"a": np.zeros(1)})
        manager.save(5, {"a": np.full(1, 8)}, force=True)
        manager.wait()
        assert manager.restore()["a"].tolist() == [8]
        for step in (-1, 1.5, True, "1", None, np.ones(1, int), 2**63):
            with pytest.raises(shardwright.InvalidArgumentError, match="whole number"):
                manager.save(step, {"a": np.ones(1)})


def test_a_branch(root):
    with CheckpointManager(root) as manager:
        for step in (1, 3, 5):
            manager.save(step, {"a": np.full(1, step)})
    with CheckpointManager(root, lower="branch") as manager:
        manager.save(2, {"a": np.full(1, 20)})
        manager.wait()
        assert manager.all_steps() == [1, 2]
        assert sorted(p.name for p in (root / ".branches" / "0").iterdir()) == ["3", "5"]
        manager.prune(older_than=0)
        assert sorted(p.name for p in root.iterdir() if p.name != ".writer") == ["1", "2"]


def test_questions_without_an_answer(root):
    with CheckpointManager(root, best_metric="loss") as manager:
        assert manager.latest() is None and manager.best() is None and manager.steps() == []
        with pytest.raises(shardwright.NotFoundError, match="no complete step"):
            manager.restore()
        manager.save(1, {"a": np.ones(1)})
        manager.wait()
        assert manager.iterator_state() is None and manager.metrics() == {}
        with pytest.raises(shardwright.NotFoundError, match="there is no step 7") as raised:
            manager.restore(7)
        assert raised.value.hint == "there are 1"
        (root / "1" / "commit_success.txt").unlink()
        next((root / "1" / "state" / "d").iterdir()).unlink()
        with pytest.raises(shardwright.CorruptError, match="not complete"):
            manager.restore(1)
    with pytest.raises(shardwright.InvalidArgumentError, match="closed"):
        manager.latest()


def test_iterators_of_another_number_of_processes(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": np.ones(1)}, iterator_state={"at": 3})
        manager.wait()
        assert manager.iterator_state() == {"at": 3}
        (root / "1" / "shardwright.manifest.json").unlink()  # which names every file
        (root / "1" / "iterator" / "process_0-of-1.json").rename(root / "1" / "iterator" / "process_1-of-2.json")
        (root / "1" / "iterator" / "process_0-of-2.json").write_text("plain")
        with pytest.raises(shardwright.NotFoundError, match="number of processes"):
            manager.iterator_state()
        assert manager.iterator_state(every=True) == ["plain", {"at": 3}]


def test_verify_finds_a_changed_byte(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": np.arange(10_000)})
        manager.wait()
        data = max((root / "1" / "state" / "d").iterdir(), key=lambda p: p.stat().st_size)
        content = bytearray(data.read_bytes())
        content[5000] ^= 1
        data.write_bytes(content)
        assert manager.latest() == 1
        with pytest.raises(shardwright.CorruptError):
            manager.restore(verify=True)


# ---- failures

def test_a_failure_is_told_once_and_is_no_step(root):
    manager = CheckpointManager(root, keep_last=1)
    manager.save(1, {"a": np.ones(10)}, within=-1)
    with pytest.raises(shardwright.AbortedError) as raised:
        manager.wait()
    assert "while step 1 was saved" in str(raised.value)
    manager.wait()
    assert manager.all_steps() == []
    manager.save(2, {"a": np.ones(10)}, within=-1)
    with pytest.raises(shardwright.AbortedError):
        while True:  # a save after it, before which it has failed
            manager.save(3, {"a": np.ones(10)})
    manager.save(3, {"a": np.ones(10)})
    manager.save(4, {"a": np.ones(10)}, within=-1)
    with pytest.raises(shardwright.AbortedError):
        manager.close()
    assert [p.name for p in root.iterdir()] == ["3"]


def test_a_second_save_is_refused_by_choice(root):
    big = np.ones(4_000_000)
    with CheckpointManager(root, second="refuse") as manager:
        manager.save(1, {"a": big})
        with pytest.raises(shardwright.UnavailableError, match="still running"):
            manager.save(2, {"a": big})
        manager.wait()
        manager.save(2, {"a": big})
        with pytest.raises(shardwright.UnavailableError):
            manager.wait(timeout=0)
        manager.wait()
        assert manager.all_steps() == [1, 2]


def run(code: str, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def test_the_end_of_the_process_waits_and_is_not_silent(root):
    done = run("""
        import sys, numpy as np, shardwright
        manager = shardwright.CheckpointManager(sys.argv[1])
        manager.save(1, {"a": np.ones(3_000_000)})
        other = shardwright.CheckpointManager(sys.argv[1] + "2")
        other.save(1, {"a": np.ones(3)}, within=-1)
        """, root)
    assert done.returncode == 0
    assert "AbortedError" in done.stderr and "while step 1 was saved" in done.stderr
    with CheckpointManager(root) as manager:
        assert manager.latest() == 1
    done = run("""
        import sys, numpy as np, shardwright
        with shardwright.CheckpointManager(sys.argv[1]) as manager:
            manager.save(2, {"a": np.ones(3)}, within=-1)
            raise KeyError("of the loop")
        """, root)
    assert done.returncode == 1 and "KeyError: 'of the loop'" in done.stderr and "a save in the background failed" in done.stderr


def test_views_survive_donation():
    pytest.importorskip("jax")
    from shardwright.jax.donation import views_survive_donation
    assert views_survive_donation()


def test_donated_arrays_by_reference_and_by_copy(root):
    jax = pytest.importorskip("jax")
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for hold in ("copy", "reference"):
        state = step(jax.numpy.zeros(1_000_000))
        with CheckpointManager(root / hold, hold=hold) as manager:
            for number in range(3):
                manager.save(number, {"x": state})
                state = step(state)
            manager.wait()
            for number in range(3):
                assert (manager.restore(number)["x"] == number + 1).all()


def test_without_frameworks(root):
    done = run("""
        import sys, numpy as np, shardwright
        with shardwright.CheckpointManager(sys.argv[1]) as manager:
            manager.save(1, {"a": np.ones(3), "b": 1})
            manager.wait()
            manager.restore(target={"a": np.ones(3), "b": 0})
        print(sorted({name.split(".")[0] for name in sys.modules} & {"jax", "torch", "keras", "tensorflow", "orbax"}))
        """, root)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_examples_go_on_where_they_stopped(tmp_path, capsys, framework):
    pytest.importorskip(framework)
    script = pathlib.Path(__file__).resolve().parents[2] / "examples" / f"{framework}_training.py"
    main = runpy.run_path(str(script))["main"]

    def call(directory, steps) -> list[str]:
        main(str(tmp_path / directory), steps)
        return capsys.readouterr().out.splitlines()
    call("halves", 10)
    resumed, at_once = call("halves", 20), call("whole", 20)
    assert resumed[0].startswith("goes on after step 9") and resumed[-1] == at_once[-1]


@pytest.mark.parametrize("format", ["orbax", "safetensors"])
def test_incremental(root, format):
    frozen, changing = np.arange(1_000_000, dtype="f4"), np.zeros(300_000, "f4")
    with CheckpointManager(root, format=format, incremental=True, keep_last=2) as manager:
        for step in (1, 2, 3):
            changing += 1
            manager.save(step, {"frozen": frozen, "changing": changing})
        manager.wait()
        first, last = manager.steps()
        assert last.step == 3 and last.shared_nbytes >= frozen.nbytes and changing.nbytes <= last.new_nbytes < changing.nbytes + 100_000
        manager.delete(2)
        tree = manager.restore(verify=True)
        assert manager.steps()[0].shared_nbytes == 0
    assert np.array_equal(tree["frozen"], frozen) and np.array_equal(tree["changing"], changing)


def test_one_job_writes(root):
    with CheckpointManager(root) as manager:
        manager.save(1, {"a": np.zeros(1)})
        code = f"""
import shardwright as sw
with sw.CheckpointManager({str(root)!r}) as manager:
    manager.wait()
    try:
        manager.save(2, {{"a": 1}})
    except sw.UnavailableError as error:
        print(error.found)
"""
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert f"process {os.getpid()} on " in said


FORKS = """
import os, sys
import numpy as np
import shardwright as sw

manager = sw.CheckpointManager(sys.argv[1])
manager.save(1, {"w": np.ones(2_000_000)})
if os.fork() == 0:
    try:
        manager.save(2, {"w": np.ones(1)})
    except sw.InvalidArgumentError as error:
        print(error)
    sys.exit()  # with all that a process does at its end
print("child", os.wait()[1], flush=True)
manager.close()
print(sw.CheckpointManager(sys.argv[1]).all_steps())
"""


def test_no_older_step_instead_of_one_that_cannot_be_looked_at(root):
    with CheckpointManager(root, keep_last=1) as manager:
        manager.save(1, {"a": np.zeros(1)})
        manager.save(2, {"a": np.ones(1)})
        manager.wait()
        manager.save(3, {"a": np.ones(1)})
        manager.wait()
        shutil.move(root / "3" / "state", root / "away")
        (root / "3" / "state").symlink_to("state")  # in a circle: no error of permission, which root never has
        for ask in (manager.latest, manager.info, manager.restore):
            with pytest.raises(shardwright.Error, match="symbolic links"):
                ask()
        with pytest.raises(shardwright.Error, match="symbolic links"):
            manager.save(3, {"a": np.ones(1)})
        assert manager.prune(older_than=0) == [] and (root / "3").is_dir()


def test_a_forked_process_waits_for_nothing(root):
    done = subprocess.run([sys.executable, "-c", FORKS, str(root)], capture_output=True, text=True, timeout=60, check=True)
    assert "not in one forked from that" in done.stdout and "child 0" in done.stdout and done.stdout.endswith("[1]\n"), done.stdout



def test_preemption(root):
    with CheckpointManager(root, preemption=signal.SIGTERM) as manager:
        assert not manager.reached_preemption(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.reached_preemption(2)
        manager.save(2, {"a": np.zeros(1)}, within=20)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with CheckpointManager(root) as manager:
        assert manager.all_steps() == [2]
        with pytest.raises(shardwright.InvalidArgumentError, match="no signal"):
            manager.reached_preemption(3)
