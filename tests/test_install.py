"""`cmake --install` into a prefix of its own: another project finds the package, every public header stands alone, and the
program's manual and completions are in place."""
import os
import pathlib
import shutil
import subprocess

import pytest

INSPECT = pathlib.Path(__file__).resolve().parent.parent / "examples" / "inspect"


def call(*command, **kwargs) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(shardwright, tmp_path_factory) -> pathlib.Path:
    build = shardwright.path.parent
    if not (build / "cmake_install.cmake").is_file():
        pytest.fail(f"{build} is no build tree: this test installs from the one that SHARDWRIGHT_BIN lies in")
    path = tmp_path_factory.mktemp("prefix")
    call("cmake", "--install", build, "--prefix", path)
    return path


@pytest.fixture(scope="module")
def inspect(prefix, tmp_path_factory) -> pathlib.Path:
    """The example, built against the installed package from a copy outside this repository."""
    folder = tmp_path_factory.mktemp("inspect")
    shutil.copytree(INSPECT, folder / "source")
    call("cmake", "-S", folder / "source", "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", folder / "build")
    return folder / "build" / "inspect"


def test_example_lists_and_reads(inspect, tmp_path):
    import numpy as np
    from safetensors.numpy import save_file
    save_file({"a.weight": np.arange(12, dtype="f4").reshape(3, 4) / 8, "step": np.array(7)}, tmp_path / "a.safetensors")
    listed = [line.split() for line in call(inspect, tmp_path / "a.safetensors").splitlines()]
    assert sorted(listed) == sorted([["F32", "[3,", "4]", "a.weight"], ["I64", "[]", "step"]])
    assert call(inspect, tmp_path / "a.safetensors", "a.weight") == "[0:1, 0:4] = 0 0.125 0.25 0.375\n"
    assert call(inspect, tmp_path / "a.safetensors", "step").split("=")[1].split() == ["7"]


def test_example_reports_errors(inspect, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    done = subprocess.run([inspect, tmp_path / "a.safetensors"], capture_output=True, text=True, check=False)
    assert done.returncode in (4, 6) and "LFS" in done.stderr
    assert subprocess.run([inspect, tmp_path / "absent"], capture_output=True, check=False).returncode == 3


def test_public_headers_stand_alone(prefix, tmp_path):
    """Each compiles on its own, and includes nothing that was not installed."""
    include = prefix / "include"
    headers = sorted(include.rglob("*.h"))
    assert len(headers) > 15
    source = tmp_path / "all.cc"
    objects = []
    for header in headers:
        name = header.relative_to(include).as_posix()
        objects.append(f'#include "{name}"\n#include "{name}"\n')
    # One translation unit per order that matters: each header first once would take a minute; the first line of each .cc in
    # src/ already includes its own header first. Here: forwards, and backwards.
    for order in (objects, objects[::-1]):
        source.write_text("".join(order))
        call("g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include}", source)


def test_manual_and_completions(prefix):
    page = (prefix / "share/man/man1/shardwright.1").read_text()
    assert page.startswith(".Dd") or page.startswith(".TH") or page.startswith(".\\\"")
    warnings = call("mandoc", "-T", "lint", "-W", "warning", prefix / "share/man/man1/shardwright.1")
    assert not warnings
    assert "copy" in call("mandoc", "-T", "ascii", prefix / "share/man/man1/shardwright.1")
    script = prefix / "share/bash-completion/completions/shardwright"
    # Completes a verb by its first letters, in a shell that loads nothing else.
    answer = call("bash", "--norc", "-c", f"""
        source /usr/share/bash-completion/bash_completion; source {script}
        complete -p shardwright >/dev/null || exit 1
        function=$(complete -p shardwright | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=(shardwright ver); COMP_CWORD=1; COMP_LINE='shardwright ver'; COMP_POINT=15
        $function shardwright ver shardwright; echo "${{COMPREPLY[@]}}" """)
    assert "verify" in answer.split()


def test_installed_program_runs(prefix):
    done = call(prefix / "bin" / "shardwright", "--version", env={"PATH": os.environ["PATH"]})
    assert "0.1" in done
