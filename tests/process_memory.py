"""Anonymous memory of another process, sampled from outside."""
import os
import subprocess
import time


def anonymous_bytes(pid: int) -> int:
    """RssAnon; 0 when the process is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def growth(command: list[str], env: dict[str, str] | None = None) -> int:
    """Highest RssAnon from the line "ready" to the line "loaded" or else the end, beyond what there was at "ready".

    The process waits for a line after each of the two, and must end well.
    """
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()[-3000:]
        base = peak = anonymous_bytes(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        os.set_blocking(process.stdout.fileno(), False)
        while process.poll() is None and "loaded" not in (process.stdout.readline() or ""):
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.002)
        if process.poll() is None:
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.wait(600) == 0, process.stderr.read()[-3000:]
    finally:
        process.kill()
        process.wait()
    return peak - base
