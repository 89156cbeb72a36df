"""Help, the manual page and shell completion, all made from the command table."""

import json
import re
import shutil

import numpy as np
import pytest

import inputs

VERBS = ["ls", "info", "show", "diff", "verify", "hash", "copy", "reindex", "steps", "forget", "prune", "restore", "formats", "completion", "man", "help"]
ALIASES = {"list": "ls", "inspect": "info", "cp": "copy", "convert": "copy", "check": "verify", "manifest": "hash"}


def test_general_help(run):
    done = run("shardwright --help")
    assert done.returncode == 0 and done.stderr == ""
    for verb in [*VERBS, *ALIASES]:
        assert re.search(rf"^  .*\b{verb}\b", done.stdout, re.M), verb
    assert done.stdout == run("shardwright help").stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_verb_help(run, verb):
    text = run(f"shardwright {verb} --help").stdout
    assert text == run(f"shardwright help {verb}").stdout == run(f"shardwright -h {verb}").stdout
    examples = text.split("\nExamples\n")[1].strip().splitlines()
    assert len(examples) == 6 and all("shardwright " in line for line in examples[1::2])
    for line in text.splitlines():
        assert len(line) <= 80 or line in examples or "Examples" in text[:text.index(line)], line


@pytest.mark.parametrize("alias", ALIASES)
def test_alias(run, alias):
    assert run(f"shardwright {alias} --help").stdout == run(f"shardwright {ALIASES[alias]} --help").stdout


def test_examples_are_accepted(run, checkpoints):
    """Every example in the help parses: the error, if any, is about its made-up file names."""
    for verb in VERBS:
        for line in run(f"shardwright {verb} --help").stdout.splitlines():
            if line.startswith("  shardwright ") and not any(word in line for word in (">", "|", "completion", "man -l")):
                done = run(line.strip())
                assert done.returncode in (0, 3), (line, done.stderr)


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc")
def test_manual_page(run):
    done = run("shardwright man > page.1 && mandoc -T lint -W warning page.1")
    assert done.returncode == 0, done.stdout
    text = re.sub(".\x08", "", run("mandoc -T utf8 page.1").stdout)
    for verb in VERBS:
        assert re.search(rf"^ +shardwright {verb}", text, re.M), verb
    for words in ("EXIT STATUS", "SHARDWRIGHT_MEMORY", "--max-shard-size SIZE", "peak_memory_bytes"):
        assert words in text, words


def complete(run, words, program="bash"):
    """What bash offers for the last of the words."""
    script = f"""
source <(shardwright completion bash)
COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}
_shardwright 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = run(f"cat > script.bash <<'END'\n{script}\nEND\nbash script.bash")
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("words, offered", [
    (["shardwright", "re"], ["reindex", "restore"]),
    (["shardwright", "c"], ["copy", "cp", "convert", "completion", "check"]),
    (["shardwright", "copy", "--max"], ["--max-shard-size"]),
    (["shardwright", "copy", "--dtype", "BF"], ["BF16"]),
    (["shardwright", "copy", "--to", "safe"], ["safetensors"]),
    (["shardwright", "--progress", "al"], ["always"]),
    (["shardwright", "--threads", "2", "ver"], ["verify"]),
    (["shardwright", "ls", "small"], ["small.safetensors"]),
    (["shardwright", "copy", "--rename", "ren"], ["rename.json"]),
    (["shardwright", "show", "small.safetensors", "emb"], ["embed.weight"]),
    (["shardwright", "show", "--stats", "small.safetensors", "st"], ["steps"]),
    (["shardwright", "completion", "z"], ["zsh"]),
    (["shardwright", "copy", "--threads", "''"], []),
    (["shardwright", "ls", "--sort", "''"], ["file", "name", "size"]),
])
def test_bash_completion(run, words, offered):
    assert sorted(complete(run, words)) == sorted(offered)


def test_completion_runs_nothing_out_of_a_file(run, checkpoints):
    inputs.write_safetensors(checkpoints / "evil.safetensors", {"$(touch pwned)": np.zeros(1, np.float32), "`touch pwned`": np.zeros(1, np.float32)})
    assert sorted(complete(run, ["shardwright", "show", "evil.safetensors", "''"])) == ["$(touch pwned)", "`touch pwned`"]
    assert not (checkpoints / "pwned").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_parses(run, shell):
    done = run(f"shardwright completion {shell} > script && {shell} -n script")
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_option(run, shell):
    script = run(f"shardwright completion {shell}").stdout
    for verb in VERBS:
        for option in re.findall(r"^  (?:-\w, |    )--([\w-]+)", run(f"shardwright {verb} --help").stdout, re.M):
            assert (f"-l {option} " if shell == "fish" else f"--{option}") in script, option


def test_every_option_has_a_variable(run):
    assert json.loads(run("SHARDWRIGHT_JSON=yes shardwright ls small.safetensors").stdout)
    assert run("SHARDWRIGHT_QUIET=1 shardwright ls small.safetensors embed*").stdout == "embed.weight\n"
    assert run("SHARDWRIGHT_LONG=1 shardwright ls small.safetensors").stdout == run("shardwright ls -l small.safetensors").stdout
    assert run("SHARDWRIGHT_SORT=size shardwright ls --sort name small.safetensors").stdout == run("shardwright ls -s name small.safetensors").stdout
    wrong = run("SHARDWRIGHT_SORT=colour shardwright ls small.safetensors")
    assert wrong.returncode == 2 and "SHARDWRIGHT_SORT" in wrong.stderr
    assert run("SHARDWRIGHT_JSON=0 shardwright ls -q small.safetensors steps").stdout == "steps\n"
