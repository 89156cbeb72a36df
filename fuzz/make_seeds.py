#!/usr/bin/env python3
"""Writes the seeds made by hand: json, zip, codec, text, safetensors, hub index, journal, manifest, layouts. Run once; the result is in git."""
import io
import json
import pathlib
import struct
import zipfile
import zlib

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def put(target: str, name: str, content: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def json_seeds() -> None:
    put("fuzz_json", "index", b'{"metadata": {"total_size": 12.0}, "weight_map": {"/layers/d/vars": ["a_00000.weights.h5"]}}')
    put("fuzz_json", "numbers", b'[0, -1, 1.5, 1e300, -0.0, 18446744073709551615, 9223372036854775808, 2e400]')
    put("fuzz_json", "strings", rb'["\u00e9", "\ud83d\ude00", "\"\\\/\b\f\n\r\t", "\u0000"]')
    put("fuzz_json", "lone_surrogate", rb'["\ud800"]')
    put("fuzz_json", "duplicate_key", b'{"a": 1, "a": 2}')
    put("fuzz_json", "duplicate_key_deep", b'{"a": [{"b": {"c": 1, "d": 2, "c": 3}}]}')
    put("fuzz_json", "deep_127", b"[" * 127 + b"]" * 127)
    put("fuzz_json", "deep_200", b"[" * 200 + b"]" * 200)
    put("fuzz_json", "trailing", b"{} x")
    put("fuzz_json", "bom", b"\xef\xbb\xbf{}")
    put("fuzz_json", "bad_utf8", b'["\xff\xfe"]')
    put("fuzz_json", "empty", b"")


def zip_seeds() -> None:
    def archive(**kwargs) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", **kwargs) as made:
            made.writestr(zipfile.ZipInfo("metadata.json"), b'{"keras_version": "3.15.1"}')
            made.writestr(zipfile.ZipInfo("config.json"), b"{}")
            made.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(100))
        return out.getvalue()

    stored = archive()
    put("fuzz_zip", "stored", stored)
    put("fuzz_zip", "deflated", archive(compression=zipfile.ZIP_DEFLATED))
    put("fuzz_zip", "empty_archive", b"PK\5\6" + bytes(18))
    put("fuzz_zip", "truncated", stored[:-30])
    put("fuzz_zip", "comment", stored[:-2] + struct.pack("<H", 7) + b"comment")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made, made.open(zipfile.ZipInfo("big"), "w", force_zip64=True) as member:
        member.write(b"zip64 local header")
    put("fuzz_zip", "zip64_local", out.getvalue())
    end = len(stored) - 22
    count, length, start = struct.unpack("<HLL", stored[end + 10:end + 20])
    zip64 = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    put("fuzz_zip", "zip64_end", stored[:end] + zip64 + locator + last)
    # Two directory records of one member: its range counts twice.
    record = stored[start:start + length]
    first = record[:46 + struct.unpack("<H", record[28:30])[0]]
    doubled = first + record
    put("fuzz_zip", "overlap", stored[:start] + doubled
        + struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, count + 1, count + 1, len(doubled), start, 0))


def codec_seeds() -> None:
    values = bytes(range(256)) * 16

    def chunk(steps: bytes, encoded: bytes, cut: int, decoded: int = len(values)) -> bytes:
        return bytes([len(steps)]) + steps + struct.pack("<I", decoded) + bytes([cut]) + encoded

    put("fuzz_codec", "none", chunk(b"", values, 7))
    for row in range(4):  # rows of codec_table, in any order
        put("fuzz_codec", f"row{row}_zlib", chunk(bytes([row]), zlib.compress(values), 13))
        put("fuzz_codec", f"row{row}_gzip", chunk(bytes([row]), zlib.compress(values, wbits=31), 13))
        put("fuzz_codec", f"row{row}_raw", chunk(bytes([row + 64]), values, 200))
        put("fuzz_codec", f"row{row}_short", chunk(bytes([row]), zlib.compress(values)[:-9], 0))
        put("fuzz_codec", f"row{row}_bomb", chunk(bytes([row]), zlib.compress(bytes(1 << 20)), 0, 100))


def text_seeds() -> None:
    for i, text in enumerate(["5GB\n", "1.5GiB\n", "256mib\n", "-1MB\n", "5GBB\n", "1e3MB\n", "99999999999999TB\n", "*\nmodel.a",
                              "model.*.w?ight\nmodel.layers.0.weight", "[a-c]*[!x]\nabc", "**a**b\naab", "../x\n", "a/../b\n",
                              "C:\\x\n", "shards/a.safetensors\n", "version https://git-lfs.github.com/spec/v1\n",
                              "<!DOCTYPE html>\n", "caf\u00e9\n\u00e9", "\0\n\0"]):
        put("fuzz_text", f"seed_{i:02}", text.encode())


def safetensors_seeds() -> None:
    def file(header: bytes, payload: bytes = b"") -> bytes:
        return struct.pack("<Q", len(header)) + header + payload

    good = b'{"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}'
    put("fuzz_safetensors", "good", file(good, bytes(11)))
    put("fuzz_safetensors", "short", file(good, bytes(10)))
    put("fuzz_safetensors", "empty", file(b"{}      "))
    put("fuzz_safetensors", "overlap", file(good.replace(b"[8,11]", b"[5,8]"), bytes(8)))
    put("fuzz_safetensors", "overflow", file(good.replace(b"[1,2]", b"[4294967296,4294967296]"), bytes(11)))
    put("fuzz_safetensors", "packed", file(b'{"x":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}', bytes(2)))
    put("fuzz_safetensors", "duplicate", file(b'{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"1"))
    put("fuzz_safetensors", "tie", file(b'{"__metadata__":{"y":"x"},"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"1"))
    put("fuzz_safetensors", "huge_header", struct.pack("<Q", 2**63))


def hub_index_seeds() -> None:
    for name, text in {
            "good": '{"metadata":{"total_size":8},"weight_map":{"x":"a.safetensors","y":"a.safetensors"}}',
            "bare": '{"weight_map":{"x":"a.safetensors","y":"a.safetensors"}}',
            "missing": '{"weight_map":{"x":"a.safetensors","z":"b.safetensors"}}',
            "escape": '{"weight_map":{"x":"../a.safetensors"}}',
            "absolute": '{"weight_map":{"x":"/a.safetensors","y":"C:a.safetensors"}}',
            "tie": '{"metadata":{"t":"x"},"weight_map":{"x":"a.safetensors","y":"a.safetensors"}}',
            "duplicate": '{"weight_map":{"x":"a.safetensors","x":"a.safetensors"}}'}.items():
        put("fuzz_hub_index", name, text.encode())


def journal_seeds() -> None:
    good = {"shardwright_journal": 1, "directory_inode": 11, "staging": ".shardwright-42-0123456789abcdef", "staging_inode": 12,
            "remove_before": ["index.json"], "objects": [{"key": "a/b", "size": 3}, {"key": "index.json", "size": 0}], "remove_after": ["old"]}
    for name, change in {"good": {}, "later": {"shardwright_journal": 2}, "escape": {"remove_after": ["../x"]}, "absolute": {"objects": [{"key": "/x", "size": 1}]},
                         "foreign_staging": {"staging": ".shardwright-x"}, "negative": {"objects": [{"key": "a", "size": -1}]}, "no_list": {"remove_before": 1}}.items():
        put("fuzz_journal", name, json.dumps(good | change).encode())


def manifest_seeds() -> None:
    tensor = {"dtype": "BF16", "shape": [2, 3], "hash": "0123456789abcdef" * 2}
    stored = {"file": "m", "offset": 8, "length": 12, "crc32c": "8a9136aa"}
    for name, entry in {"good": {"content": {"w": tensor}, "stored": [stored]}, "empty": {"content": {}, "stored": []},
                        "no_shape": {"content": {"w": {"dtype": "F32", "hash": "0" * 32}}, "stored": []}, "number": {"content": {"w": 1}, "stored": [2]},
                        "huge_extent": {"content": {"w": tensor | {"shape": [2**64]}}, "stored": []}, "no_file": {"content": {}, "stored": [{"offset": 1}]}}.items():
        put("fuzz_manifest", name, json.dumps({"version": 1, "checkpoints": {"m": entry}}).encode())


def layout_seeds() -> None:
    def texts(target: str, *seeds: str) -> None:
        for i, text in enumerate(seeds):
            put(target, f"seed_{i:02}", text.encode())

    texts("fuzz_gspmd", "{devices=[2,4]<=[8]}", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "{replicated}",
          "{devices=[4,2]0,4,1,5,2,6,3,7}", "{devices=[4,2]<=[2,2,2]T(0,2,1)}", "{devices=[2,1,4]<=[8] last_tile_dims={replicated}}",
          "{maximal device=0}", "{devices=[2,5]<=[8]}", "{devices=[4294967296,4294967296]<=[8]}", "{manual}")
    texts("fuzz_shardy", '#sdy.mesh<["a"=2, "b"=4]>', '#sdy.mesh<["a"=2], device_ids=[1, 0]>', '#sdy.sharding<@mesh, [{"a", "b"}, {}]>',
          '#sdy.sharding<@m, [{"a", ?}, {?}], replicated={"b"}>', '#sdy.sharding<mesh<["a"=2, "b"=4, "one"=1]>, [{"one", "b"}]>',
          '#sdy.sharding<@mesh, [{"b":(1)2}p1], unreduced={"a"}>', "#sdy.sharding<@mesh, []>")
    texts("fuzz_placements", "(Shard(dim=0), Replicate())", "(Shard(dim=0),)", "[Shard(0), Shard(1)]", "(_StridedShard(dim=0, sf=4), Shard(dim=0))",
          "(_S(0, 2), R, S(0))", "(_StridedShard(dim=1, split_factor=3), Shard(dim=1), Partial(sum))")
    named = ('{"sharding_type": "NamedSharding", "shape": [2, 1], "axis_names": ["x", "y"], "axis_types": ["AxisType.Auto"], '
             '"partition_spec": [["x", "y"], null], "device_mesh": {"mesh": [[{"id": 1}], [{"id": 0}]]}}')
    texts("fuzz_orbax_sharding", named, '{"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"}',
          json.dumps({"d194": named, "cw==": named}), '{"d194eQ==": "{}"}', '{"sharding_type": "NamedSharding", "shape": [4294967296, 4294967296]}')
    mesh = '{"mesh": {"axis_names": ["data", "model"], "shape": [2, 4]}, '
    texts("fuzz_layout_file", "layers.0.attn\n" + mesh + '"rules": {"attn": ["model", ""], "mlp": [null, ["data", "model"]]}}',
          "a\n" + mesh + '"match": "fullmatch", "uneven": "chunk", "rules": {"a": "#sdy.sharding<@m, [{\\"model\\"}]>", "b|a": []}}',
          'x\n{"rules": {"x+": "{devices=[2,4]<=[8]}", "y": "(Shard(0), R)"}}', "x1\n" + mesh + '"rules": {"x\\\\d": ["data"], "(?P<n>.)(?P=n)": []}}')


if __name__ == "__main__":
    json_seeds()
    zip_seeds()
    codec_seeds()
    text_seeds()
    safetensors_seeds()
    hub_index_seeds()
    journal_seeds()
    manifest_seeds()
    layout_seeds()
