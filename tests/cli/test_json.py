"""Every JSON output has exactly the documented fields, in order, with the documented types."""

import json
import os
import subprocess

import pytest

NUMBER = (int, float)
OPTIONAL_TEXT = (str, type(None))
TENSOR = {"name": str, "dtype": str, "shape": list, "nbytes": int, "shard": OPTIONAL_TEXT, "offset": (int, type(None))}
SHARD = {"file": str, "tensors": int, "nbytes": int}
SUMMARY = {"type": str, "source": str, "target": str, "format": str, "tensors": int, "shards": int, "bytes_read": int,
           "bytes_written": int, "reread": NUMBER, "seconds": NUMBER, "peak_memory_bytes": int, "warnings": list}
STATUS = {"type": str, "phase": str, "bytes_done": int, "bytes_total": int, "bytes_per_second": int, "seconds": NUMBER}
FINDING = {"type": str, "code": str, "path": OPTIONAL_TEXT, "tensor": OPTIONAL_TEXT, "offset": (int, type(None)), "found": OPTIONAL_TEXT,
           "expected": OPTIONAL_TEXT, "message": str}
VERIFIED = {"type": str, "path": str, "tensors": int, "bytes_checked": int, "findings": int, "manifest": bool, "full": bool,
            "seconds": NUMBER, "peak_memory_bytes": int}
ERROR = {"type": str, "code": str, "message": str, "path": OPTIONAL_TEXT, "tensor": OPTIONAL_TEXT, "offset": (int, type(None)),
         "found": OPTIONAL_TEXT, "expected": OPTIONAL_TEXT, "context": list, "hint": OPTIONAL_TEXT, "exit_code": int}
FORMAT = {"name": str, "description": str, "files": str, "read": bool, "write": bool, "sharded": bool, "ties": bool, "metadata": bool,
          "subbyte": bool}


def check(value, fields):
    assert list(value) == list(fields)
    for name, kind in fields.items():
        assert isinstance(value[name], kind), (name, value[name])
        assert kind is bool or not isinstance(value[name], bool), (name, value[name])


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def parse(text):
    return json.loads(text, parse_constant=refuse_constant)


@pytest.fixture
def run_json(run):
    def call(line, exit_code=0):
        done = run(line)
        assert done.returncode == exit_code, done.stderr
        assert done.stderr == "" or exit_code > 1
        return parse(done.stdout) if done.stdout.lstrip().startswith("[") or "\n{" not in done.stdout else [parse(row) for row in done.stdout.splitlines()]

    return call


def test_ls(run_json):
    rows = run_json("shardwright ls --json small.safetensors")
    for row in rows:
        check(row, TENSOR)
    by_name = {row["name"]: row for row in rows}
    assert by_name["embed.weight"] | {"offset": 0} == {"name": "embed.weight", "dtype": "F32", "shape": [4, 3], "nbytes": 48,
                                                       "shard": "small.safetensors", "offset": 0}
    assert by_name["steps"]["shape"] == []


def test_ls_offset_is_where_the_bytes_are(run_json, checkpoints):
    row = next(row for row in run_json("shardwright --json ls small.safetensors embed.weight"))
    with open(checkpoints / row["shard"], "rb") as file:
        file.seek(row["offset"])
        assert file.read(row["nbytes"]).hex() == "".join(map(lambda i: __import__("struct").pack("<f", i / 4).hex(), range(12)))


def test_ls_collapse_and_shards(run_json):
    for row in run_json("shardwright ls --json --collapse small.safetensors"):
        check(row, {"name": str, "count": int, "dtype": str, "shape": list, "nbytes": int})
    rows = run_json("shardwright ls --json --shards sharded")
    assert [row["file"] for row in rows] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for row in rows:
        check(row, SHARD)


def test_ls_of_nothing_is_an_empty_array(run):
    assert parse(run("shardwright ls --json small.safetensors nomatch").stdout) == []


def test_info(run_json):
    info = run_json("shardwright info --json sharded")
    check(info, {"path": str, "format": str, "tensors": int, "parameters": int, "nbytes": int, "dtypes": dict, "shards": list, "ties": dict,
                 "metadata": dict, "opaque": dict})
    assert info["path"] == "sharded" and info["tensors"] == 6 and info["parameters"] == 12 + 3 + 4 + 4 + 1
    assert info["nbytes"] == 48 + 6 + 16 + 16 + 8
    assert info["dtypes"] == {"F32": {"tensors": 4, "nbytes": 80}, "BF16": {"tensors": 1, "nbytes": 6}, "I64": {"tensors": 1, "nbytes": 8}}
    for row in info["shards"]:
        check(row, SHARD)
    assert sum(row["nbytes"] for row in info["shards"]) == info["nbytes"]


def test_show(run_json):
    shown = run_json("shardwright show --json small.safetensors embed.weight --slice ::-2,1:")
    assert shown == {"name": "embed.weight", "dtype": "F32", "shape": [2, 2], "values": [[2.5, 2.75], [1.0, 1.25]]}
    assert run_json("shardwright show --json small.safetensors steps")["values"] == 7
    assert run_json("shardwright show --json small.safetensors nothing")["values"] == []
    stats = run_json("shardwright show --json small.safetensors head.bias --stats")
    check(stats, {"name": str, "dtype": str, "shape": list, "elements": int, "min": NUMBER, "max": NUMBER, "mean": NUMBER, "nan": int,
                  "infinite": int, "zero": int})
    assert (stats["min"], stats["max"], stats["zero"]) == (-2, 1.5, 1)


def test_copy(run_json, checkpoints):
    rows = run_json("shardwright copy --json --progress always small.safetensors out")
    rows = rows if isinstance(rows, list) else [rows]
    check(rows[-1], SUMMARY)
    assert rows[-1]["type"] == "summary" and rows[-1]["tensors"] == 6
    for row in rows[:-1]:
        check(row, STATUS)
        assert row["type"] == "status"


def test_copy_dry_run(run_json, checkpoints):
    plan = run_json("shardwright copy --json --dry-run small.safetensors out")
    check(plan, SUMMARY | {"files": list})
    assert plan["type"] == "plan"
    for row in plan["files"]:
        check(row, {"file": str, "size": (int, type(None))})
    assert not (checkpoints / "out").exists()


MAPPED = {"name": str, "dtype": str, "shape": list, "rule": OPTIONAL_TEXT, "partition_spec": list, "shard_shape": list, "shard_nbytes": int,
          "even": bool, "replicas": int, "gspmd": str, "shardy": str, "placements": str}


def test_map(run):
    shown = parse(run("shardwright map --json --layout layout.toml small.safetensors").stdout)
    check(shown, {"path": str, "mesh": dict, "match": str, "tensors": list, "devices": list, "unmatched": list, "unused_rules": list, "problems": list})
    check(shown["mesh"], {"axis_names": list, "shape": list, "devices": list, "shardy": str})
    for row in shown["tensors"]:
        check(row, MAPPED)
    assert shown["tensors"][1] == {
        "name": "embed.weight", "dtype": "F32", "shape": [4, 3], "rule": "embed", "partition_spec": ["model", None], "shard_shape": [1, 3],
        "shard_nbytes": 12, "even": True, "replicas": 2, "gspmd": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "shardy": '#sdy.sharding<@mesh, [{"model"}, {}]>', "placements": "(Replicate(), Shard(dim=0))"}
    assert shown["devices"] == [{"device": str(i), "nbytes": 42} for i in range(8)]
    assert shown["unmatched"] == [{"name": "steps", "nbytes": 8, "large": False}, {"name": "nothing", "nbytes": 0, "large": False},
                                  {"name": "head.bias", "nbytes": 6, "large": False}]
    assert shown["unused_rules"] == ["typo"] and shown["problems"] == []


def test_map_boxes_and_problems(run):
    done = run("shardwright map --json --long --mesh data=2,model=3 --layout layout.toml small.safetensors")
    assert done.returncode == 1
    shown = parse(done.stdout)
    problem, = shown["problems"]
    check(problem, {"tensor": str, "message": str, "found": OPTIONAL_TEXT, "expected": OPTIONAL_TEXT, "context": list})
    assert shown["tensors"][1] == {"name": "embed.weight", "dtype": "F32", "shape": [4, 3]}
    check(shown["tensors"][2], MAPPED | {"boxes": list})
    assert shown["tensors"][2]["boxes"][3] == {"start": [0, 1], "extent": [2, 1]}


def test_verify(run_json):
    check(run_json("shardwright verify --json small.safetensors"), VERIFIED)
    rows = run_json("shardwright verify --json cut.safetensors", exit_code=1)
    for row in rows[:-1]:
        check(row, FINDING)
        assert row["type"] == "finding" and row["code"] == "corrupt"
    check(rows[-1], VERIFIED)
    assert rows[-1]["type"] == "summary" and rows[-1]["findings"] == len(rows) - 1 > 0


def test_diff(run_json):
    assert run_json("shardwright diff --json small.safetensors sharded") == []
    rows = run_json("shardwright diff --json small.safetensors changed.safetensors", exit_code=1)
    for row in rows:
        check(row, {"name": str, "change": str, "max_abs_diff": (int, float, type(None))})
    assert {row["name"]: (row["change"], row["max_abs_diff"]) for row in rows} == {
        "embed.weight": ("value", 0.25), "nothing": ("removed", None), "extra": ("added", None)}


def test_hash(run_json):
    rows = run_json("shardwright hash --json small.safetensors")
    for row in rows:
        check(row, {"name": str, "dtype": str, "shape": list, "hash": str})
        assert len(row["hash"]) == 32
    other = run_json("shardwright hash --json sharded")
    assert {row["name"]: row for row in rows} == {row["name"]: row for row in other}


def test_reindex(run_json, checkpoints):
    (checkpoints / "sharded" / "model.safetensors.index.json").unlink()
    done = run_json("shardwright reindex --json sharded")
    check(done, {"type": str, "index": str, "tensors": int, "shards": int, "added": list, "removed": list, "moved": list})
    assert (done["type"], done["tensors"], done["shards"]) == ("summary", 6, 2)


def test_steps_forget_and_prune(run, run_json, checkpoints):
    for step in (1, 2):
        run(f"mkdir -p run && shardwright copy -q small.safetensors run/{step} --to orbax --option item=state && mkdir run/{step}/metrics && "
            f"echo '{{\"loss\": 0.{step}}}' > run/{step}/metrics/metrics")
    (checkpoints / "run" / "3.orbax-checkpoint-tmp").mkdir()
    fields = {"step": (int, type(None)), "name": str, "state": str, "time": OPTIONAL_TEXT, "nbytes": int, "new_nbytes": int, "shared_nbytes": int, "metrics": dict,
              "metadata": dict, "proof": str}
    rows = run_json("shardwright steps --json run")
    for row in rows:
        check(row, fields)
    assert [(row["step"], row["state"], row["metrics"].get("loss")) for row in rows] == [(1, "complete", 0.1), (2, "complete", 0.2), (None, "leftover", None)]
    rows = run_json("shardwright forget --json --dry-run --keep-last 1 run")
    for row in rows:
        check(row, {"step": int, "action": str, "reasons": list, "nbytes": int})
    assert [(row["step"], row["action"]) for row in rows] == [(1, "remove"), (2, "keep")]
    (row,) = run_json("shardwright prune --json --older-than 0 run")
    check(row, {"name": str, "what": str, "nbytes": int})
    done = run_json("shardwright restore --json run@best:loss out.safetensors")
    check(done if isinstance(done, dict) else done[-1], SUMMARY)


def test_formats(run_json):
    rows = run_json("shardwright formats --json")
    for row in rows:
        check(row, FORMAT)
    assert {row["name"]: row["write"] for row in rows}["safetensors"]


@pytest.mark.parametrize("line, code, exit_code", [
    ("shardwright ls --json missing.safetensors", "not_found", 3),
    ("shardwright info cut.safetensors --json", "corrupt", 4),
    ("SHARDWRIGHT_JSON=1 shardwright show small.safetensors no.such", "not_found", 3),
    ("shardwright copy --json small.safetensors", "invalid_argument", 2),
    ("shardwright --json nonsense", "invalid_argument", 2),
    ("shardwright copy --json small.safetensors changed.safetensors", "already_exists", 9),
    ("shardwright verify --json missing", "not_found", 3),
    ("shardwright diff --json small.safetensors missing", "not_found", 3),
])
def test_error(run, line, code, exit_code):
    done = run(line)
    assert done.stdout == ""
    error = parse(done.stderr)
    check(error, ERROR)
    assert (error["type"], error["code"], error["exit_code"], done.returncode) == ("error", code, exit_code, exit_code)


def test_out_of_memory_is_an_error(shardwright, tmp_path):
    """The system gives the program less than it asks for: an error with its code, no abort."""
    (tmp_path / "manifest.ocdbt").touch()
    os.truncate(tmp_path / "manifest.ocdbt", 900 << 20)
    done = subprocess.run(["sh", "-c", 'ulimit -v 716800; exec "$0" ocdbt ls . --json', str(shardwright.path)], cwd=tmp_path,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 8, done.stderr
    assert "no more memory" in done.stdout + done.stderr
