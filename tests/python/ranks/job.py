"""Runs a Python text in several processes at once, as ranks of a job."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


class Job:
    """Processes that run `code`, with their number in INDEX and their count in COUNT, and more as words of the environment."""

    def __init__(self, count: int, code: str, **environment):
        base = {**os.environ, "COUNT": str(count), "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), **{k: str(v) for k, v in environment.items()}}
        self.processes = [subprocess.Popen([sys.executable, "-c", code], env={**base, "INDEX": str(index)}, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True) for index in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
            process.communicate()

    def outputs(self, timeout: float = 100, failing=()) -> list[str]:
        """What each prints; all must end well but those named."""
        done = [process.communicate(timeout=timeout) for process in self.processes]
        for index, (process, (out, err)) in enumerate(zip(self.processes, done)):
            assert index in failing or process.returncode == 0, f"process {index}: {process.returncode}\n{out[-3000:]}\n{err[-6000:]}"
        return [out.strip() for out, _ in done]


def run(count: int, code: str, **environment) -> list[str]:
    with Job(count, code, **environment) as job:
        return job.outputs()


def speaks(ranks) -> None:
    """What ranks of every kind must do; they are of no more use then."""
    import time

    import shardwright as sw
    index, count = ranks.index, ranks.count
    for call in range(5):
        assert ranks.all_gather(b"%d." % call * index) == [b"%d." % call * i for i in range(count)]
    assert ranks.all_gather(bytes([index]) * 3_000_001) == [bytes([i]) * 3_000_001 for i in range(count)]
    ranks.timeout = 0.5
    if index == 1:
        time.sleep(1.5)
        ranks.timeout = 20
    try:
        ranks.barrier()
        ranks.barrier()  # the late one finds what the others left of the first
    except sw.UnavailableError as error:
        assert error.message == "rank 1 did not answer in time", error
    else:
        raise SystemExit("nobody noticed")
    time.sleep(1.5 if index != 1 else 0)  # whoever keeps the store stays
