#!/usr/bin/env python3
"""Makes tests/data/hdf5/*.h5 with h5py: what other people's HDF5 files look like.

Every numeric dataset holds 0, 1, 2, ... in C order, converted to its type (booleans: 0, 1, 0, 1, ...), but where a comment says otherwise.
Run again only to add files: h5py writes no times here, but library versions change bytes.
"""
import pathlib

import h5py
import ml_dtypes
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent / "hdf5"


def count(shape, dtype="<f4"):
    n = int(np.prod(shape, dtype=np.int64))
    values = np.arange(n)
    if np.dtype(dtype) == np.bool_:
        values = values % 2
    return values.astype(dtype).reshape(shape)


def types(f):
    for name in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8"]:
        for order in "<>":
            f[f"{'little' if order == '<' else 'big'}/{name}"] = count((2, 3), order + name)
    f["bool"] = count((5,), np.bool_)
    for name in ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]:
        values = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
        data = f.create_dataset(f"opaque/{name}", data=values.view(f"V{values.dtype.itemsize}"))
        data.attrs["dtype"] = name
    # Two elements a byte, four in three bytes; here the bytes are 0, 1, 2, ...
    for name, size, shape in [("float4_e2m1fn", 6, [3, 4]), ("F6_E2M3", 9, [12])]:
        data = f.create_dataset(f"opaque/{name}", data=np.arange(size, dtype="u1").view("V1"))
        data.attrs["dtype"] = name
        data.attrs["shape"] = np.array(shape, "<i8")
    f["scalar"] = np.float32(7)
    f["empty"] = np.zeros((0, 3), "<f4")
    f["enumeration"] = np.arange(3, dtype="<i2")
    f.create_dataset("named_enumeration", data=np.arange(3, dtype="<i2"), dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, basetype="<i2"))


def storage(f):
    for order in "<>":
        g = f.create_group("little" if order == "<" else "big")
        kind = order + "f4"
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        data = h5py.h5d.create(g.id, b"compact", h5py.h5t.py_create(np.dtype(kind)), h5py.h5s.create_simple((2, 3)), plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, count((2, 3), kind))
        g.create_dataset("whole_chunks", data=count((4, 6), kind), chunks=(2, 3))
        g.create_dataset("clipped_rows", data=count((5, 6), kind), chunks=(2, 6))
        g.create_dataset("clipped_both", data=count((5, 7), kind), chunks=(2, 3))
        g.create_dataset("deflate", data=count((50, 7), kind), chunks=(20, 4), compression="gzip")
        g.create_dataset("shuffle", data=count((50, 7), kind), chunks=(20, 4), shuffle=True)
        g.create_dataset("fletcher32", data=count((50, 7), kind), chunks=(20, 4), fletcher32=True)
        g.create_dataset("all_filters", data=count((50, 7), kind), chunks=(20, 4), shuffle=True, compression="gzip", fletcher32=True)
        # Unlimited, many chunks: a B-tree of several levels, or an extensible array.
        g.create_dataset("many_chunks", data=count((600,), kind), chunks=(2,), maxshape=(None,))
        # Written in part: the rest is the fill value 9.
        g.create_dataset("holes", shape=(8,), dtype=kind, chunks=(3,), fillvalue=9)[3:6] = [3, 4, 5]
        # Never written: all 9, all 0.
        g.create_dataset("unwritten", shape=(2, 5), dtype=kind, fillvalue=9)
        g.create_dataset("unwritten_chunks", shape=(8,), dtype=kind, chunks=(3,), compression="gzip")
        g.create_dataset("empty_chunks", shape=(0, 5), dtype=kind, chunks=(3, 5), maxshape=(None, 5))
        # One chunk stored without its filter (mask 1), the other with it.
        data = g.create_dataset("mixed_mask", shape=(8,), dtype=kind, chunks=(4,), compression="gzip")
        data.id.write_direct_chunk((0,), count((4,), kind).tobytes(), filter_mask=1)
        data[4:] = [4, 5, 6, 7]


def ties(f):
    f["a/vars/0"] = count((4,))
    f["z/vars/0"] = f["a/vars/0"]
    f["m/vars/0"] = f["a/vars/0"]
    f["other/vars/0"] = count((2,))


def skipped(f):
    f["kept"] = count((3,))
    f["text"] = "hello"
    f["texts"] = ["a", "bc"]
    f["fixed"] = np.array([b"ab", b"cd"])
    f["compound"] = np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")])
    f["nothing"] = h5py.Empty("f4")
    f["reference"] = f["kept"].ref
    f.create_dataset("ragged", shape=(2,), dtype=h5py.vlen_dtype(np.int32))
    f["named_type"] = np.dtype("<f4")


def names(f):
    """As our writer does: the true name in an attribute."""
    for path, name in [("model.0.weight/vars/0", "model.0.weight"), ("a%2Fb/vars/0", "a//b")]:
        f[path] = count((2, 2))
        f[path].attrs["shardwright_name"] = name
    f["nul/vars/0"] = count((2,))
    f["nul/vars/0"].attrs["shardwright_name"] = np.frombuffer(b"with\0nul", "u1")
    # A tie of two such names: the dataset has the one, the group of the link the other.
    f["alias/vars/0"] = f["model.0.weight/vars/0"]
    f["alias/vars"].attrs["shardwright_name"] = "alias!"
    f["layers/dense/vars/0"] = count((3,))
    f["layers/dense/vars"].attrs["name"] = "my dense"
    f.attrs["shardwright_metadata"] = '{"format": "pt"}'


def seeds():
    """Small files for the fuzzer, one feature each."""
    corpus = OUT.parent.parent.parent / "fuzz" / "corpus" / "fuzz_hdf5"
    corpus.mkdir(parents=True, exist_ok=True)
    f4 = count((6,))

    def opaque(f):
        f["vars/0"] = f4.view("V4")[:2].view("V2")
        f["vars/0"].attrs["dtype"] = "bfloat16"
        f["vars"].attrs["name"] = "n"
        f["vars/0"].attrs["shardwright_name"] = "a.b"

    def links(f):
        f["a/vars/0"] = f4
        f["b/vars/0"] = f["a/vars/0"]
        f["c"] = h5py.SoftLink("/a")

    features = {
        "contiguous": lambda f: f.create_dataset("a/vars/0", data=f4),
        "gzip": lambda f: f.create_dataset("x", data=f4, chunks=(4,), compression="gzip", shuffle=True, fletcher32=True),
        "unlimited": lambda f: f.create_dataset("x", data=f4, chunks=(2,), maxshape=(None,)),
        "unwritten": lambda f: f.create_dataset("x", shape=(9,), dtype="<f4", fillvalue=3),
        "enumeration": lambda f: f.create_dataset("x", data=np.array([True, False])),
        "complex": lambda f: f.create_dataset("x", data=np.zeros(2, np.complex64)),
        "text": lambda f: f.create_dataset("x", data="hello"),
        "opaque": opaque, "links": links,
    }
    for name, fill in features.items():
        for libver in ["earliest", "v110"]:
            with h5py.File(corpus / f"{name}_{libver}.h5", "w", libver=(libver, "v110")) as f:
                fill(f)


def main():
    OUT.mkdir(exist_ok=True)
    seeds()
    for make in [types, storage, ties, skipped, names]:
        with h5py.File(OUT / f"{make.__name__}.h5", "w") as f:
            make(f)
    # The newest structures that HDF5 1.10 knows.
    with h5py.File(OUT / "storage_v110.h5", "w", libver=("v110", "v110")) as f:
        storage(f)
    with h5py.File(OUT / "newer_library.h5", "w", libver="latest") as f:
        f.create_dataset("x", data=count((6,)), chunks=(2,), compression="gzip")
    with h5py.File(OUT / "userblock.h5", "w", userblock_size=1024) as f:
        storage(f)
    with h5py.File(OUT / "earliest_v110.h5", "w", libver=("earliest", "v110"), track_order=True) as f:
        types(f)


if __name__ == "__main__":
    main()
