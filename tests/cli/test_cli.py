"""Runs the *.test files beside this one.

A file is a list of cases. A case starts with `== title` and holds shell lines (`$ command`), each followed by what it must print to
stdout (`> line`) and stderr (`! line`), and its exit code when it is not 0 (`= 3`). `<...>` stands for any text within a line, a line
`> ...` for any number of lines. Each case runs in a directory of its own with the files of inputs.py.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Command:
    line: str
    number: int
    stdout: list = field(default_factory=list)
    stderr: list = field(default_factory=list)
    exit_code: int = 0


def read_cases(path):
    cases = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if not line or mark.startswith("#"):
            continue
        if mark == "==":
            cases.append((rest, []))
        elif mark == "$":
            cases[-1][1].append(Command(rest, number))
        elif mark == ">":
            cases[-1][1][-1].stdout.append(rest)
        elif mark == "!":
            cases[-1][1][-1].stderr.append(rest)
        elif mark == "=":
            cases[-1][1][-1].exit_code = int(rest)
        else:
            raise ValueError(f"{path}:{number}: what is {line!r}?")
    return cases


def pattern(lines):
    out = ""
    for line in lines:
        out += r"(?:.*\n)*" if line == "..." else ".*".join(re.escape(part) for part in line.split("<...>")) + r"\n"
    return out


def all_cases():
    for path in sorted(Path(__file__).parent.glob("*.test")):
        for title, commands in read_cases(path):
            yield pytest.param(path, commands, id=f"{path.stem}: {title}")


@pytest.mark.parametrize("path, commands", list(all_cases()))
def test_case(path, commands, run):
    for command in commands:
        done = run(command.line)
        told = f"{path.name}:{command.number}: $ {command.line}\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
        assert done.returncode == command.exit_code, told
        assert re.fullmatch(pattern(command.stdout), done.stdout), told
        assert re.fullmatch(pattern(command.stderr), done.stderr), told
