"""OCDBT databases: TensorStore's read by us, and the other way round in test_orbax.py."""
import pytest

ts = pytest.importorskip("tensorstore")


def open_database(path, **config):
    spec = {"driver": "ocdbt", "base": f"file://{path}/"}
    if config:
        spec["config"] = config
    return ts.KvStore.open(spec).result()


def listed(shardwright, path) -> dict:
    return {row["key"]: row["size"] for row in shardwright.json("ocdbt", "ls", path)}


def fill(database, rng, count: int) -> dict:
    values = {f"k{rng.integers(10**6):07}/{'x' * int(rng.integers(20))}": rng.bytes(int(rng.integers(300))) for _ in range(count)}
    for key, value in values.items():
        database.write(key, value).result()
    return values


CONFIGS = {
    "default": {},
    "uncompressed": {"compression": None},
    "high_tree": {"max_decoded_node_bytes": 500, "max_inline_value_bytes": 20},
    "numbered": {"manifest_kind": "numbered", "max_decoded_node_bytes": 2000},
    "all_in_files": {"max_inline_value_bytes": 0, "compression": {"id": "zstd", "level": 9}},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_tensorstores_databases_are_read(shardwright, tmp_path, rng, name):
    """Sixty commits, so that older versions have a tree of their own."""
    values = fill(open_database(tmp_path, **CONFIGS[name]), rng, 60)
    assert listed(shardwright, tmp_path) == {key: len(value) for key, value in sorted(values.items())}
    assert shardwright.lines("ocdbt", "check", tmp_path)[-1] == {"type": "summary", "path": str(tmp_path), "keys": 60, "findings": 0}
    rows = shardwright.lines("ocdbt", "dump", tmp_path)
    versions = [row["generation"] for row in rows if row["type"] == "version"]
    assert versions == sorted(versions) and len(versions) >= 60
    assert sum(row["type"] == "value" for row in rows) == 60
    heights = {row["height"] for row in rows if row["type"] == "node"}
    assert (max(heights) > 0) == (name in ("high_tree", "numbered"))


def test_empty_database(shardwright, tmp_path):
    database = open_database(tmp_path)
    database.write("a", b"1").result()
    database.delete_range(ts.KvStore.KeyRange()).result()
    assert listed(shardwright, tmp_path) == {}
    assert shardwright.lines("ocdbt", "check", tmp_path)[-1]["findings"] == 0


def test_damage_is_found(shardwright, tmp_path, rng):
    fill(open_database(tmp_path, max_decoded_node_bytes=500), rng, 20)
    shardwright.run("ocdbt", "ls", tmp_path / "absent", code=3)
    nodes = [row for row in shardwright.lines("ocdbt", "dump", tmp_path) if row["type"] == "node"]
    for node in nodes[:2] + nodes[-2:]:
        path = tmp_path / node["file"]
        kept = path.read_bytes()
        at = node["offset"] + int(rng.integers(node["length"]))
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1:])
        findings = shardwright.lines("ocdbt", "check", tmp_path, code=1)
        assert findings[0]["type"] == "finding" and findings[0]["code"] == "corrupt", findings
        path.write_bytes(kept)
    assert shardwright.lines("ocdbt", "check", tmp_path)[-1]["findings"] == 0


@pytest.mark.parametrize("sample", ["multiprocess_2x4/1/default", "indirect"])
def test_merged_by_reference(shardwright, data, tmp_path, sample):
    """Databases of processes as Orbax left them; what it merged of them is gone. TensorStore reads ours as it read that, and extends it."""
    import shutil
    shutil.copytree(data / "orbax" / sample, tmp_path / "c")
    merged = open_database(tmp_path / "c")
    expected = {key: merged.read(key).result().value for key in merged.list().result()}
    shardwright.run("ocdbt", "merge", tmp_path / "c", code=9)
    (tmp_path / "c" / "manifest.ocdbt").unlink()
    shutil.rmtree(tmp_path / "c" / "d")
    done = shardwright.json("ocdbt", "merge", tmp_path / "c")
    assert done["keys"] == len(expected) and done["merged"] == [f"ocdbt.process_{i}/" for i in range(len(done["merged"]))]
    assert sum(path.stat().st_size for path in (tmp_path / "c" / "d").iterdir()) < 4000, "values were copied"
    ours = open_database(tmp_path / "c")
    assert {key: ours.read(key).result().value for key in ours.list().result()} == expected
    assert shardwright.lines("ocdbt", "check", tmp_path / "c")[-1]["findings"] == 0
    ours.write("more", b"1").result()
    assert listed(shardwright, tmp_path / "c")["more"] == 1
    shardwright.run("ls", tmp_path / "c")


@pytest.mark.alone
def test_many_keys_are_listed_at_once(shardwright, tmp_path):
    """100,000 arrays: two keys each."""
    import time
    database = open_database(tmp_path, max_inline_value_bytes=1024)
    with ts.Transaction(atomic=True) as transaction:
        into = database.with_transaction(transaction)
        for i in range(100_000):
            into.write(f"params.layer_{i}.kernel/.zarray", b'{"chunks":[2]}').result()
            into.write(f"params.layer_{i}.kernel/0", b"12345678").result()
    started = time.monotonic()
    out = shardwright.run("ocdbt", "ls", "-q", tmp_path).stdout
    assert time.monotonic() - started < 2
    assert out.count("\n") == 200_000


@pytest.mark.alone
def test_many_arrays_are_listed_at_once(shardwright, tmp_path):
    """100,000 arrays as Orbax has them: its tree, and each array's metadata and chunk. In time of the processor: one thread, whatever else runs."""
    import resource

    import raw

    def seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    raw.write(tmp_path / "a.safetensors", {f"params.layer_{i}.kernel": ("F32", [2], bytes(8)) for i in range(100_000)})
    shardwright.copy(tmp_path / "a.safetensors", tmp_path / "c", "--to", "orbax")
    before = seconds()
    out = shardwright.run("ls", "-q", tmp_path / "c").stdout
    assert seconds() - before < 2
    assert out.count("\n") == 100_000
