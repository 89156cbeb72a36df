"""CheckpointManager by several processes: plain ones, of jax.distributed, of torch.distributed, under mpirun."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import shardwright as sw

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from job import Job, run  # noqa: E402

MEET = """
import os, signal, sys, time
import numpy as np, shardwright as sw
index, count, at = int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]
ranks = sw.join_ranks(at + "/meet", index, count, timeout=30)
def part(step):
    rows = 48 // count
    whole = np.arange(48 * 1000, dtype="f4").reshape(48, 1000) + step
    return {"w": sw.Sharded(whole.shape, "float32", [((index * rows, 0), whole[index * rows:(index + 1) * rows])]), "bias": np.full(7, step), "n": step}
"""
JAX = """
import os
import jax, numpy as np, shardwright as sw
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
index, count, at = int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]
jax.distributed.initialize(os.environ["ADDRESS"], count, index)
mesh = Mesh(np.array(jax.devices()), ("x",))
def spread(value, spec):
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda i: value[i])
def tree(step):
    value = np.arange(64 * 100, dtype="f4").reshape(64, 100) + step
    return {"w": spread(value, P("x")), "all": spread(value[:3], P()), "n": step}
"""
TORCH = """
import os
import torch, numpy as np, shardwright as sw
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
index, count, at = int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]
dist.init_process_group("gloo", init_method="tcp://" + os.environ["ADDRESS"], rank=index, world_size=count)
mesh = init_device_mesh("cpu", (count,))
def tree(step):
    value = torch.arange(64 * 100, dtype=torch.float32).reshape(64, 100) + step
    return {"w": distribute_tensor(value, mesh, [Shard(0)]), "all": value[:3].clone(), "n": step}
"""
# Saved by as many, read by as many: each its own part. The saves are of the background; what each wrote is told.
SAVED = """
with sw.CheckpointManager(at + "/run", keep_last=2) as manager:
    for step in (1, 2, 3):
        manager.save(step, tree(step), metrics={"loss": 1 / step}, iterator_state={"of": index})
    manager.wait()
    own = manager._core.last()["own_nbytes"]
"""
READ = """
with sw.CheckpointManager(at + "/run") as manager:
    found = manager.restore(target=tree(0))
    assert manager.latest() == 3 and found["n"] == 3
"""
VALUE = np.arange(64 * 100, dtype="f4").reshape(64, 100) + 3


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def expect_steps(root: pathlib.Path, count: int) -> None:
    """As one process sees them, without a framework."""
    with sw.CheckpointManager(root, ranks=None) as manager:
        assert manager.all_steps() == [2, 3]
        assert manager.iterator_state(every=True) == [{"of": index} for index in range(count)]
        with pytest.raises(sw.NotFoundError, match="number of processes is another"):
            manager.iterator_state()
        assert manager.metrics(3) == {"loss": 1 / 3}
        tree = manager.restore(verify=True)
    assert np.array_equal(tree["w"], VALUE) and np.array_equal(tree["all"], VALUE[:3]) and tree["n"] == 3


@pytest.mark.parametrize("count", [2, 4])
def test_jax(tmp_path, count):
    code = JAX + SAVED + "print(own)" + READ + """
assert all(np.array_equal(s.data, (np.arange(6400, dtype="f4").reshape(64, 100) + 3)[s.index]) for s in found["w"].addressable_shards)
assert found["w"].sharding == tree(0)["w"].sharding
"""
    env = {"AT": tmp_path, "ADDRESS": free_address(), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    own = [int(text) for text in run(count, code, **env)]
    assert sum(own) == 64 * 100 * 4 + 3 * 100 * 4 + 8 and max(own) <= 64 * 100 * 4 / count + 3 * 100 * 4 + 8
    expect_steps(tmp_path / "run", count)
    # Fewer processes, another layout, and Orbax.
    code = JAX.replace('P("x")', 'P(None, "x")') + READ + """
assert all(np.array_equal(s.data, (np.arange(6400, dtype="f4").reshape(64, 100) + 3)[s.index]) for s in found["w"].addressable_shards)
import orbax.checkpoint as ocp
with ocp.CheckpointManager(at + "/run", options=ocp.CheckpointManagerOptions(read_only=True), item_names=("state",)) as theirs:
    assert theirs.latest_step() == 3
    like = jax.tree.map(lambda leaf: leaf if isinstance(leaf, int) else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), tree(0), is_leaf=lambda leaf: isinstance(leaf, int))
    got = theirs.restore(3, args=ocp.args.Composite(state=ocp.args.StandardRestore(like)))["state"]
assert np.array_equal(got["w"], np.arange(6400, dtype="f4").reshape(64, 100) + 3)
""" if count == 2 else ""
    if code:
        run(1, code, **{**env, "ADDRESS": free_address(), "XLA_FLAGS": "--xla_force_host_platform_device_count=4"})


@pytest.mark.parametrize("count", [2, 4])
def test_torch(tmp_path, count):
    code = TORCH + SAVED + "print(own)" + READ + """
assert torch.equal(found["w"].to_local(), tree(3)["w"].to_local()) and found["w"].placements == tree(0)["w"].placements
assert torch.equal(found["all"], tree(3)["all"])
dist.barrier()
dist.destroy_process_group()
"""
    own = [int(text) for text in run(count, code, AT=tmp_path, ADDRESS=free_address())]
    assert sum(own) == 64 * 100 * 4 + 3 * 100 * 4 + 8 and max(own) <= 64 * 100 * 4 / count + 3 * 100 * 4 + 8
    expect_steps(tmp_path / "run", count)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
@pytest.mark.parametrize("count", [2, 4])
def test_mpirun(tmp_path, count):
    code = (MEET.replace("index, count, at =", "at = os.environ['AT']; _ =").replace('int(os.environ["INDEX"]), int(os.environ["COUNT"]), os.environ["AT"]', "None")
            .replace('"/meet", index, count,', '"/meet",').replace("timeout=30)", "timeout=30); index, count = ranks.index, ranks.count")) + """
with sw.CheckpointManager(at + "/run") as manager:
    manager.save(3, part(3))
    manager.wait()
    found = manager.restore(target={"w": np.zeros((48, 1000), "f4"), "bias": np.zeros(7, "i8"), "n": 0})
assert found["n"] == 3 and found["w"][47, 999] == 48002
"""
    done = subprocess.run(["mpirun", "-n", str(count), "--allow-run-as-root", "--oversubscribe", sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=100, check=False, env={**os.environ, "AT": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-6000:]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["3"]


def test_one_is_killed_one_stopped(tmp_path):
    """In the background: told by wait(), in time, with its number. Then others save the same step."""
    code = MEET + """
ranks.timeout = 1
manager = sw.CheckpointManager(at + "/run")
manager.save(1, part(1)); manager.wait()
if index == 1:
    os.kill(os.getpid(), signal.SIGKILL if os.environ["HOW"] == "kill" else signal.SIGSTOP)
manager.save(2, part(2))
try:
    manager.wait()
except sw.UnavailableError as error:
    print(error.message, manager.all_steps())
"""
    for how, words in (("kill", "rank 1 ended before the work was done [1]"), ("stop", "rank 1 did not answer in time [1]")):
        with Job(4, code, AT=tmp_path / how, HOW=how) as job:
            for index in (0, 2, 3):
                out, err = job.processes[index].communicate(timeout=60)
                assert out.strip() == words, err
            if how == "stop":
                job.processes[1].send_signal(signal.SIGCONT)
                assert "rank 1" in job.processes[1].communicate(timeout=60)[0]
        again = MEET + "with sw.CheckpointManager(at + '/run') as manager:\n    manager.save(2, part(2))"
        run(2, again, AT=tmp_path / how)
        with sw.CheckpointManager(tmp_path / how / "run", ranks=None) as manager:
            assert manager.all_steps() == [1, 2] and manager.restore()["w"][47, 999] == 48001


def test_what_one_cannot_do_is_everyones_failure(tmp_path):
    """A leaf that cannot be saved, on one; the ranks go on."""
    code = MEET + """
manager = sw.CheckpointManager(at + "/run")
said = []
for step, extra in ((1, {"bad": np.array(["text"])}), (2, {})):
    try:
        manager.save(step, part(step) | (extra if index == 1 else {})); manager.wait()
        said.append("saved")
    except sw.Error as error:
        said.append("text" in str(error) or "no type" in str(error))
# The best by no metric: process 0 says so at once; text that means no step, each by itself.
for step, kind in (("best", sw.InvalidArgumentError if index == 0 else sw.UnavailableError), ("newest", sw.InvalidArgumentError)):
    try:
        manager.restore(step)
    except sw.Error as error:
        said.append(type(error) is kind and ("no best_metric" in str(error) or step == "newest"))
said.append(manager.agreed("latest"))
manager.close()
print(said)
"""
    texts = run(2, code, AT=tmp_path)
    assert texts == ["[True, 'saved', True, True, 2]"] * 2, texts


def test_preemption_is_everyones(tmp_path):
    """SIGTERM to one: all save at the same step, and end well."""
    code = MEET + """
with sw.CheckpointManager(at + "/run", preemption=signal.SIGTERM) as manager:
    for step in range(1, 1000):
        if step == 5 and index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if manager.reached_preemption(step):
            manager.save(step, part(step), within=20)
            break
print(step, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""
    assert run(2, code, AT=tmp_path) == ["5 True"] * 2
    with sw.CheckpointManager(tmp_path / "run", ranks=None) as manager:
        assert manager.all_steps() == [5]
