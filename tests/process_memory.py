"""Anonymous memory of another process, sampled from outside."""
import os
import subprocess
import tempfile
import time


def anonymous_bytes(pid: int) -> int:
    """RssAnon; 0 when the process is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def growth(command: list[str], env: dict[str, str] | None = None) -> int:
    """Highest RssAnon from the line "ready" to the line "done" or else the end, beyond what there was at "ready".

    The process waits for a line after each of the two, and must end well.
    """
    return growth_and_rest(command, env)[0]


def growth_and_rest(command: list[str], env: dict[str, str] | None = None) -> tuple[int, int]:
    """The same, and what of it is still there at "done"."""
    with tempfile.TemporaryFile("w+") as errors:  # no pipe: nobody reads it meanwhile

        def told() -> str:
            errors.seek(0)
            return errors.read()[-3000:]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        try:
            assert process.stdout.readline() == "ready\n", told()
            base = peak = last = anonymous_bytes(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            os.set_blocking(process.stdout.fileno(), False)
            while process.poll() is None and "done" not in (process.stdout.readline() or ""):
                peak = max(peak, anonymous_bytes(process.pid))
                time.sleep(0.002)
            if process.poll() is None:
                last = anonymous_bytes(process.pid)
                process.stdin.write("\n")
                process.stdin.flush()
            assert process.wait(600) == 0, told()
        finally:
            process.kill()
            process.wait()
    return max(peak, last) - base, last - base
