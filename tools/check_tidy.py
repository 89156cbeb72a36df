#!/usr/bin/env python3
"""Runs clang-tidy over the sources under src/, two at a time, and remembers which came out clean.

usage: check_tidy.py BUILD_DIR [FILE...]
A file is looked at again when it, a header of ours that it includes (however far), its compile command or .clang-tidy
has changed. Test files are left to the compiler's warnings.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tidy"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def closure(path: pathlib.Path, seen: dict[pathlib.Path, bytes]) -> None:
    """Adds `path` and every header of ours that it includes to `seen`."""
    if path in seen or not path.is_file():
        return
    content = path.read_bytes()
    seen[path] = content
    for header in INCLUDE.findall(content.decode("utf-8")):
        closure(ROOT / "src" / header, seen)
        closure(path.parent / header, seen)


def key_of(path: pathlib.Path, command: str) -> str:
    seen: dict[pathlib.Path, bytes] = {}
    closure(path, seen)
    digest = hashlib.sha256(command.encode() + (ROOT / ".clang-tidy").read_bytes())
    for name in sorted(seen):
        digest.update(str(name.relative_to(ROOT)).encode() + b"\0" + seen[name] + b"\0")
    return digest.hexdigest()


def run_tidy(tidy: str, build: pathlib.Path, path: pathlib.Path) -> tuple[pathlib.Path, int, str]:
    done = subprocess.run([tidy, "--quiet", "-p", str(build), str(path)], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode and not lines:
        lines = done.stderr.splitlines()
    return path, done.returncode, "\n".join(lines)


def main() -> int:
    tidy = shutil.which("clang-tidy-14")
    if tidy is None:
        print("clang-tidy-14 is not installed (tools/system-packages test)")
        return 1
    build = pathlib.Path(sys.argv[1]).resolve()
    wanted = {pathlib.Path(name).resolve() for name in sys.argv[2:]}
    todo: list[tuple[pathlib.Path, str]] = []
    clean = 0
    CACHE.mkdir(parents=True, exist_ok=True)
    known = {entry.name for entry in CACHE.iterdir()}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(ROOT / "src") or path.stem.endswith("_test") or (wanted and path not in wanted):
            continue
        key = key_of(path, entry["command"].replace(str(ROOT), ""))
        if key in known:
            clean += 1
        else:
            todo.append((path, key))
    failures = 0
    keys = dict(todo)
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for path, code, text in pool.map(lambda item: run_tidy(tidy, build, item[0]), todo):
            if code:
                failures += 1
                print(text or f"{path}: clang-tidy ended with {code}", flush=True)
            else:
                (CACHE / keys[path]).touch()
    print(f"clang-tidy: {len(todo)} files looked at, {clean} unchanged, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
