#!/usr/bin/env python3
"""Checks the house: folders are layers and includes go down only, each third-party header has one door, files stay short.

Prints one line per finding and exits 1 when there is any; warnings (files over 400 lines) do not count.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

# Rank of each folder; a file may include its own folder and those of lower rank.
# Folders of one rank do not know each other.
RANK = {
    "base": 0,
    "tensor": 1, "codec": 1, "store": 1,
    "comm": 2, "format": 2, "layout": 2,
    "engine": 3,
    "manager": 4,
    "cli": 5, "python": 5,
}

# Third-party header -> the files (under src/) that may include it. Tests make inputs with them, so tests are free.
DOORS = {
    r"hdf5(_hl)?\.h|H5.*\.h": r"shardwright/format/hdf5_[a-z0-9_]*\.(h|cc)",
    r"pcre2\.h": r"shardwright/[a-z]+/[a-z0-9_]*regex[a-z0-9_]*\.cc|shardwright/engine/rename\.cc",
    r"CLI/.*": r"cli/.*",
    r"toml\+\+/.*": r"cli/.*",
    r"xxhash\.h": r"shardwright/base/checksum\.cc",
    r"zlib\.h": r"shardwright/base/checksum\.cc|shardwright/codec/.*\.cc",
    r"zstd(_errors)?\.h": r"shardwright/base/zstd\.cc|shardwright/codec/zstd\.cc",
    r"(lz4|blosc)\.h": r"shardwright/codec/.*\.cc",
    r"nlohmann/.*": r"shardwright/base/json\.(h|cc)|shardwright/format/[a-z0-9_]*\.cc",
    r"tl/expected\.hpp": r"shardwright/base/result\.h",
    r"fmt/.*": r".*\.cc",
    r"nanobind/.*|Python\.h": r"python/.*",
    r"mpi\.h": r"shardwright/comm/mpi_comm\.cc",
    r"(curl/curl|cuda.*)\.h": r"(?!)",
}
# Not in g++ 12 or clang-14, or not in this house.
FORBIDDEN = {
    "format": "g++ 12 has none: fmt in .cc files",
    "expected": "clang-14 has none: base/result.h",
    "ranges": "clang-14 fails on it",
    "source_location": "clang-14 has none",
    "iostream": "libraries do not print",
    "regex": "std::regex recurses: PCRE2",
}
# Tests and what only they include.
TEST_NAMES = r".*_test|.*_suite|.*_testing|.*_for_test|testing|toy_.*"
WARN_LINES, FAIL_LINES = 400, 600

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def layer_of(relative: str) -> str | None:
    """Folder that decides the rank: "format" for shardwright/format/x.h, "cli" for cli/x.cc."""
    parts = relative.split("/")
    if parts[0] == "shardwright":
        return parts[1] if len(parts) > 2 else None
    return parts[0]


def check_include(relative: str, header: str, is_test: bool) -> str | None:
    """What is wrong with this include, or None."""
    here = layer_of(relative)
    if header.startswith(("shardwright/", "cli/", "python/")):
        there = layer_of(header)
        if there not in RANK:
            return f"includes {header}: no such layer"
        if there == here or RANK[there] < RANK[here]:
            return None
        return f"includes {header}: {here}/ may not know {there}/"
    if header in FORBIDDEN and here not in ("cli", "python"):
        return f"includes <{header}>: {FORBIDDEN[header]}"
    if is_test:
        return None
    for pattern, door in DOORS.items():
        if re.fullmatch(pattern, header) and not re.fullmatch(door, relative):
            return f"includes <{header}>, which belongs behind {door}"
    return None


def check_file(path: pathlib.Path) -> tuple[list[str], list[str]]:
    relative = path.relative_to(SOURCE).as_posix()
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    errors, warnings = [], []
    if layer_of(relative) not in RANK:
        errors.append("is in no layer")
        return errors, warnings
    if lines > FAIL_LINES:
        errors.append(f"has {lines} lines: split it by subject (limit {FAIL_LINES})")
    elif lines > WARN_LINES:
        warnings.append(f"has {lines} lines: look for two subjects in one (aim under {WARN_LINES})")
    is_test = re.fullmatch(TEST_NAMES, path.stem) is not None
    for found in INCLUDE.finditer(text):
        problem = check_include(relative, found.group(2), is_test)
        if problem:
            line = text.count("\n", 0, found.start()) + 1
            errors.append(f"line {line} {problem}")
    if path.suffix == ".h" and "#pragma once" not in text:
        errors.append("has no #pragma once")
    return errors, warnings


def main() -> int:
    failures = 0
    files = sorted(p for p in SOURCE.rglob("*") if p.suffix in (".h", ".cc"))
    for path in files:
        errors, warnings = check_file(path)
        name = path.relative_to(ROOT)
        for text in errors:
            print(f"{name}: {text}")
        for text in warnings:
            print(f"{name}: warning: {text}")
        failures += len(errors)
    print(f"layers: {len(files)} files, {failures} findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
