"""What people see: progress and tables on a real (pseudo) terminal, colour, escaping, interrupts, closed pipes."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import numpy as np
import pytest

import inputs

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@pytest.fixture
def on_terminal(checkpoints, environment):
    """Runs a command with stdout and stderr on a terminal of that many columns; returns what it got, raw."""

    def call(line, columns=80, during=None, **variables):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(["bash", "-c", "exec " + line], cwd=checkpoints, env=environment | variables, stdin=slave, stdout=slave,
                                   stderr=slave)
        os.close(slave)
        got = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # EIO: the other side is closed
                break
            if not part:
                break
            got += part
            if during:
                during(process, got)
        os.close(master)
        return got.decode(), process.wait(timeout=60)

    return call


def visible_lines(text):
    return [ESCAPE.sub("", line) for line in text.replace("\r\n", "\n").split("\n")]


LONG = "model.language_model.layers.{}.self_attention.query_key_value_projection.quantized_weight.scale"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("verb", ["ls", "ls -l", "info", "ls --collapse", "formats", "show long.safetensors " + LONG.format(0)])
def test_tables_fit(on_terminal, checkpoints, columns, verb):
    inputs.write_safetensors(checkpoints / "long.safetensors", {LONG.format(i): np.zeros((128, 7), np.float32) for i in range(3)})
    line = f"shardwright {verb}" if verb.startswith(("show", "formats")) else f"shardwright {verb} long.safetensors"
    text, code = on_terminal(line, columns)
    assert code == 0
    lines = visible_lines(text)
    assert max(map(len, lines)) <= columns, text
    if verb == "ls":
        cut = len(LONG.format(0)) + 20 > columns
        assert any("\u2026" in row for row in lines) == cut
        assert any(row.startswith("model") for row in lines) and any("scale" in row for row in lines)


def test_piped_tables_are_whole(run, checkpoints):
    inputs.write_safetensors(checkpoints / "long.safetensors", {LONG.format(0): np.zeros(1, np.float32)})
    assert LONG.format(0) in run("shardwright ls long.safetensors").stdout


@pytest.mark.parametrize("columns", [40, 72])
def test_messages_are_wrapped(on_terminal, run, checkpoints, columns):
    """At blanks, with the further lines indented; what is no terminal gets one line."""
    for line in ("shardwright ls small.safetensors 'no such name anywhere in the whole of this file'", "shardwright copy small.safetensors x.weights.h5 --max-shard-size 5",
                 "shardwright copy small.safetensors out --dtype bfloat6"):
        text, _ = on_terminal(line, columns, NO_COLOR="1")
        lines = visible_lines(text)
        begun = next(i for i, row in enumerate(lines) if row.startswith("shardwright: "))
        assert any(row.startswith("  ") for row in lines[begun + 1:]), text
        assert all(len(row) <= columns or " " not in row.strip() for row in lines), text
        plain = run(line).stderr.splitlines()
        together = [row for row in plain if row.startswith("shardwright: ")]
        assert len(together) == 1 and together[0].split() == " ".join(lines[begun:]).split()[:len(together[0].split())]


def test_names_cannot_steer_the_terminal(run, on_terminal, checkpoints):
    inputs.write_safetensors(checkpoints / "evil.safetensors", {"a\x1b[31m\u202eb\n": np.zeros(1, np.float32)})
    for line in ("shardwright ls evil.safetensors", "shardwright info evil.safetensors", "shardwright hash evil.safetensors"):
        done = run(line)
        assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert r"a\x1b[31m\u{202e}b\x0a" in run("shardwright ls evil.safetensors").stdout
    text, _ = on_terminal("shardwright ls -q evil.safetensors", NO_COLOR="1")
    assert "\x1b" not in text
    assert "\x1b" not in run("shardwright show evil.safetensors $'\\e[31m'").stderr


def test_colour(on_terminal, run):
    assert "\x1b[" in on_terminal("shardwright ls small.safetensors")[0]
    assert "\x1b[" not in on_terminal("shardwright ls small.safetensors", NO_COLOR="1")[0]
    assert "\x1b[" not in on_terminal("shardwright ls --color never small.safetensors")[0]
    assert "\x1b[" in run("shardwright ls --color always small.safetensors").stdout
    assert "\x1b[" not in run("shardwright ls small.safetensors").stdout


@pytest.fixture
def large(checkpoints):
    """Enough to copy that a progress line appears."""
    inputs.write_safetensors(checkpoints / "large.safetensors", {f"t{i}": np.zeros(8 << 20, np.float32) for i in range(16)})
    return checkpoints


def test_progress_is_one_line_and_goes_away(on_terminal, large):
    text, code = on_terminal("shardwright copy --progress always --memory 16MiB large.safetensors out", 80)
    assert code == 0
    drawn = [part for part in text.split("\r\x1b[K") if "%" in part]
    assert drawn, text
    for part in drawn:
        assert "\n" not in part and len(part) < 80
        assert re.match(r"\w+ ", part), part
        assert re.search(r"\d+% +[\d.]+ [KMGi]*B of 512 MiB +(-|[\d.]+ [KMGi]*B)/s  ETA (-|\d+):(--|\d\d)", part), part
    last = text.rindex("\r\x1b[K")
    assert "%" not in text[last:] and "Copied 16 tensors" in text[last:]


def test_progress_says_nothing_elsewhere(run, large):
    assert run("shardwright copy large.safetensors out").stderr == ""
    assert "%" in run("shardwright copy --progress always --overwrite large.safetensors out").stderr
    assert run("SHARDWRIGHT_PROGRESS=never shardwright copy --overwrite large.safetensors out").stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_leaves_nothing(large, environment, number):
    before = sorted(path.name for path in large.iterdir())
    process = subprocess.Popen(["shardwright", "copy", "--progress", "always", "--memory", "16MiB", "large.safetensors", "out"], cwd=large,
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # it has begun
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == "" and "interrupted" in err
    assert sorted(path.name for path in large.iterdir()) == before


def test_closed_pipe_ends_quietly(run, checkpoints):
    inputs.write_safetensors(checkpoints / "many.safetensors", {f"tensor{i}": np.zeros(1, np.float32) for i in range(20000)})
    for verb in ("ls", "ls --json", "ls -q"):
        done = run(f"set -o pipefail; shardwright {verb} many.safetensors | head -n 2")
        assert done.returncode == 128 + signal.SIGPIPE
        assert done.stderr == "" and len(done.stdout.splitlines()) == 2


def test_full_output_is_an_error(run):
    done = run("shardwright ls small.safetensors > /dev/full")
    assert done.returncode == 8
    assert "cannot write" in done.stderr


def test_many_tensors_stream(environment, tmp_path):
    """Listing very many tensors as JSON takes little more than reading the header."""
    count = 200_000
    header = json.dumps({f"model.layers.{i}.weight": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)})
    header += " " * (-len(header) % 8)
    with open(tmp_path / "many.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header.encode())
        file.truncate(8 + len(header) + count)
    start = time.monotonic()
    done = subprocess.run(["shardwright", "ls", "--json", "many.safetensors"], cwd=tmp_path, env=environment, capture_output=True)
    seconds = time.monotonic() - start
    assert done.returncode == 0
    assert len(json.loads(done.stdout)) == count
    print(f"{seconds:.2f} s")
    assert seconds < 20  # a guard against quadratic behaviour, not a benchmark
