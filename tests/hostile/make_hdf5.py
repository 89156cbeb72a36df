#!/usr/bin/env python3
"""Makes tests/hostile/hdf5/: one file per lie, named after it. The table in src/shardwright/format/hdf5_hostile_test.cc says what each must get.

Files are made by h5py and, where a valid file cannot lie, bent byte by byte. Run again only to add files.
"""
import json
import pathlib
import struct

import h5py
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent / "hdf5"


def path(name):
    target = OUT / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def make(name, fill, **options):
    with h5py.File(path(name), "w", **options) as f:
        fill(f)


def bend(source, name, change):
    data = bytearray(path(source).read_bytes())
    change(data)
    path(name).write_bytes(data)


def plain(f):
    f["layers/dense/vars/0"] = np.arange(12, dtype="<f4").reshape(3, 4)
    f["layers/dense/vars/1"] = np.arange(4, dtype="<f4")


def replace_once(data, old, new):
    assert data.count(old) == 1, data.count(old)
    at = data.index(old)
    data[at:at + len(old)] = new


def links():
    def soft(f):
        plain(f)
        f["layers/soft"] = h5py.SoftLink("/layers/dense")
    make("soft_link.weights.h5", soft)

    def external(f):
        plain(f)
        f["layers/external"] = h5py.ExternalLink("/etc/passwd", "/x")
    make("external_link.weights.h5", external)

    def cycle(f):
        plain(f)
        f["layers/dense/again"] = f["layers"]
    make("group_cycle.weights.h5", cycle)

    def self_cycle(f):
        f["me"] = f["/"]
    make("root_in_itself.weights.h5", self_cycle)

    def twice(f):
        plain(f)
        f["other"] = f["layers/dense"]
    make("group_with_two_names.weights.h5", twice)

    def billion(f):
        group = f
        for level in range(20):
            inner = f.create_group(f"pool/{level}")
            group["a"] = inner
            group["b"] = inner
            group = inner
    make("billion_laughs.weights.h5", billion)

    def deep(f):
        f["/".join(["g"] * 400) + "/vars/0"] = np.zeros(1, "<f4")
    make("too_deep.weights.h5", deep, libver="latest")


def elsewhere():
    def external_storage(f):
        f.create_dataset("vars/0", shape=(4,), dtype="<f4", external=[("/etc/passwd", 0, 16)])
    make("external_storage.weights.h5", external_storage)

    def virtual(f):
        layout = h5py.VirtualLayout(shape=(4,), dtype="<f4")
        layout[:] = h5py.VirtualSource("/etc/hostname", "x", shape=(4,))
        f.create_virtual_dataset("vars/0", layout)
    make("virtual_dataset.weights.h5", virtual, libver=("earliest", "v110"))


def bombs():
    def chunked(f):
        f.create_dataset("vars/0", shape=(1 << 40,), dtype="<f4", chunks=(1 << 24,), compression="gzip")
    make("shape_bomb_unwritten.weights.h5", chunked)

    def one_chunk(f):
        f.create_dataset("vars/0", shape=(1 << 32,), dtype="<f4", chunks=(1 << 20,), compression="gzip")[0:4] = 1
    make("shape_bomb_one_chunk.weights.h5", one_chunk)

    def many_chunks(f):
        f.create_dataset("vars/0", shape=(1 << 30,), dtype="u1", chunks=(16,), maxshape=(None,))[0:4] = 1
    make("too_many_chunks.weights.h5", many_chunks)

    def contiguous(f):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        h5py.h5d.create(f.id, b"vars", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((1 << 20, 1 << 20)), plist)
    make("shape_bomb_contiguous.weights.h5", contiguous)


def types():
    def opaque(width):
        def fill(f):
            f["vars/0"] = np.zeros(4, f"V{width}")
        return fill
    make("opaque_one_byte.weights.h5", opaque(1))
    make("opaque_two_bytes.weights.h5", opaque(2))

    def unknown_name(f):
        f["vars/0"] = np.zeros(4, "V2")
        f["vars/0"].attrs["dtype"] = "posit16"
    make("opaque_unknown_dtype.weights.h5", unknown_name)

    def wrong_size(f):
        f["vars/0"] = np.zeros(4, "V4")
        f["vars/0"].attrs["dtype"] = "bfloat16"
    make("opaque_wrong_size.weights.h5", wrong_size)

    def no_shape(f):
        f["vars/0"] = np.zeros(4, "V1")
        f["vars/0"].attrs["dtype"] = "float4_e2m1fn"
    make("float4_without_shape.weights.h5", no_shape)

    def wrong_shape(f):
        no_shape(f)
        f["vars/0"].attrs["shape"] = np.array([3, 3], "<i8")
    make("float4_wrong_shape.weights.h5", wrong_shape)

    def negative_shape(f):
        no_shape(f)
        f["vars/0"].attrs["shape"] = np.array([-2, -4], "<i8")
    make("float4_negative_shape.weights.h5", negative_shape)

    make("long_double.weights.h5", lambda f: f.create_dataset("vars/0", data=np.zeros(2, np.longdouble)))
    make("array_elements.weights.h5", lambda f: f.create_dataset("vars/0", shape=(2,), dtype=np.dtype(("<f4", (3,)))))
    make("lzf_filter.weights.h5", lambda f: f.create_dataset("vars/0", data=np.zeros(100, "<f4"), chunks=(50,), compression="lzf"))
    make("scaleoffset_filter.weights.h5", lambda f: f.create_dataset("vars/0", data=np.arange(100), chunks=(50,), scaleoffset=0))
    make("dataset_called_vars.weights.h5", lambda f: f.create_dataset("layers/dense/vars", data=np.zeros(2, "<f4")))

    def two_names(f):
        for layer in "ab":
            f[f"{layer}/vars/0"] = np.zeros(2, "<f4")
            f[f"{layer}/vars/0"].attrs["shardwright_name"] = "same"
    make("one_name_twice.weights.h5", two_names)


def bent():
    make("plain.weights.h5", plain)
    size = path("plain.weights.h5").stat().st_size
    path("empty.weights.h5").write_bytes(b"")
    path("signature_only.weights.h5").write_bytes(path("plain.weights.h5").read_bytes()[:8])
    path("short_superblock.weights.h5").write_bytes(path("plain.weights.h5").read_bytes()[:40])
    path("truncated.weights.h5").write_bytes(path("plain.weights.h5").read_bytes()[:size - 10])
    path("lfs_pointer.weights.h5").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 20472\n")
    path("html_page.weights.h5").write_text("<!DOCTYPE html><html><body>404</body></html>\n")

    def end_too_far(data):
        data[40:48] = struct.pack("<Q", 1 << 62)
    bend("plain.weights.h5", "end_of_file_too_far.weights.h5", end_too_far)

    def version(data):
        data[8] = 9
    bend("plain.weights.h5", "unknown_superblock_version.weights.h5", version)

    def small_offsets(data):
        data[13] = 4
    bend("plain.weights.h5", "four_byte_offsets.weights.h5", small_offsets)

    def root_nowhere(data):
        data[64:72] = struct.pack("<Q", 0x7fffffffffff)
    bend("plain.weights.h5", "root_group_beyond_the_end.weights.h5", root_nowhere)

    with h5py.File(path("plain.weights.h5")) as f:
        first, second = (f[f"layers/dense/vars/{i}"].id.get_offset() for i in (0, 1))
        header = h5py.h5o.get_info(f["layers/dense/vars/1"].id).addr

    def payload(offset):
        return lambda data: replace_once(data, struct.pack("<QQ", second, 16), struct.pack("<QQ", offset, 16))
    bend("plain.weights.h5", "payload_beyond_the_end.weights.h5", payload(size - 4))
    bend("plain.weights.h5", "payload_offset_overflows.weights.h5", payload((1 << 64) - 8))
    bend("plain.weights.h5", "payloads_overlap.weights.h5", payload(first + 16))

    def longer(data):
        replace_once(data, struct.pack("<QQ", second, 16), struct.pack("<QQ", second, 8))
    bend("plain.weights.h5", "length_does_not_fit_shape.weights.h5", longer)

    def no_header(data):
        data[header:header + 16] = b"\xff" * 16
    bend("plain.weights.h5", "dataset_header_destroyed.weights.h5", no_header)

    def no_heap(data):
        at = data.index(b"HEAP")
        data[at:at + 4] = b"HAEP"
    bend("plain.weights.h5", "heap_destroyed.weights.h5", no_heap)

    def huge_heap(data):
        at = data.index(b"HEAP")
        data[at + 8:at + 16] = struct.pack("<Q", 1 << 50)
    bend("plain.weights.h5", "heap_of_a_petabyte.weights.h5", huge_heap)

    def nowhere_heap(data):  # the library's accumulator of metadata adds its length to that
        at = data.index(b"HEAP")
        data[at + 24:at + 32] = struct.pack("<Q", (1 << 64) - 1)
    bend("plain.weights.h5", "heap_at_no_address.weights.h5", nowhere_heap)

    def tree(data):
        at = data.index(b"TREE")
        data[at + 6:at + 8] = struct.pack("<H", 0xffff)
    bend("plain.weights.h5", "tree_with_too_many_entries.weights.h5", tree)


def heaps():
    """Strings lie in global heaps, which libhdf5 1.10 believes."""
    def labelled(f):
        plain(f)
        f["layers/dense/vars"].attrs["name"] = "dense_layer_1"
    make("string.weights.h5", labelled)
    data = path("string.weights.h5").read_bytes()
    heap = data.index(b"GCOL")
    reference = data.index(struct.pack("<IQI", len("dense_layer_1"), heap, 1))

    def bent_at(name, at, layout, *values):
        def change(data):
            struct.pack_into(layout, data, at, *values)
        bend("string.weights.h5", f"string_{name}.weights.h5", change)
    bent_at("heap_gone", heap, "<4s", b"GONE")
    bent_at("heap_of_no_size", heap + 8, "<Q", 8)
    bent_at("heap_of_a_petabyte", heap + 8, "<Q", 1 << 50)
    bent_at("heap_free_for_ever", heap + 16, "<HHIQ", 0, 0, 0, 0)  # the library never gets past it
    bent_at("object_larger_than_heap", heap + 24, "<Q", (1 << 64) - 16)
    bent_at("object_smaller_than_string", heap + 24, "<Q", 2)
    bent_at("object_absent", reference + 12, "<I", 5)
    bent_at("reference_beyond_the_end", reference + 4, "<Q", (1 << 64) - 8)
    bent_at("too_long", reference, "<I", 1 << 31)


def sharded():
    def set_of(name, index, shards):
        for number, fill in enumerate(shards):
            if fill is not None:
                make(f"{name}/x_{number:05}.weights.h5", fill)
        target = path(f"{name}/x.weights.json")
        target.write_text(index if isinstance(index, str) else json.dumps(index, indent=4))

    def shard(group, key, size=4):
        def fill(f):
            f[f"{group}/{key}"] = np.zeros(size, "<f4")
        return fill

    a, b = "x_00000.weights.h5", "x_00001.weights.h5"
    good = {"metadata": {"total_size": 32.0}, "weight_map": {"/layers/a/vars": [a, b]}}
    shards = [shard("layers/a/vars", 0), shard("layers/a/vars", 1)]
    set_of("good_set", good, shards)
    set_of("missing_shard", good, [shards[0], None])
    set_of("missing_first_shard", good, [None, shards[1]])
    set_of("surplus_shard", {**good, "weight_map": {"/layers/a/vars": a}, "metadata": {"total_size": 16.0}}, shards)
    set_of("surplus_layer_in_shard", {**good, "weight_map": {"/layers/a/vars": [a, b]}},
           [shards[0], lambda f: (shards[1](f), shard("layers/c/vars", 0)(f))])
    set_of("surplus_entry", {**good, "weight_map": {"/layers/a/vars": [a, b], "/layers/zz/vars": b}}, shards)
    set_of("shard_not_listed_for_layer", {**good, "weight_map": {"/layers/a/vars": a, "/layers/b/vars": b}},
           [shards[0], lambda f: (shards[1](f), shard("layers/b/vars", 0)(f))])
    set_of("variable_in_two_shards", good, [shards[0], shards[0]])
    set_of("wrong_total_size", {**good, "metadata": {"total_size": 33.0}}, shards)
    set_of("escaping_entry", {**good, "weight_map": {"/layers/a/vars": ["../x_00000.weights.h5"]}}, shards)
    set_of("duplicate_key", '{"metadata": {}, "weight_map": {"/layers/a/vars": "%s", "/layers/a/vars": "%s"}}' % (a, b), shards)
    set_of("no_weight_map", {"metadata": {}}, shards)
    set_of("index_is_no_json", "not json", shards)
    set_of("shard_is_no_hdf5", good, [shards[0], None])
    path("shard_is_no_hdf5/" + b).write_text("<html></html>")
    set_of("renamed_index", good, shards)
    path("renamed_index/x.weights.json").rename(path("renamed_index/y.weights.json"))


def main():
    links()
    elsewhere()
    bombs()
    types()
    bent()
    heaps()
    sharded()


if __name__ == "__main__":
    main()
