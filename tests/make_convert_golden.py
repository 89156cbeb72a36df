#!/usr/bin/env python3
"""Writes tests/data/convert/golden.txt: what NumPy and ml_dtypes make of many inputs, for every pair of floating types.

    python tests/make_convert_golden.py          # same bytes on every run

Lines of the file:
    block FROM TO INDEX CRC32       crc of the converted bytes of block INDEX of inputs(FROM), kBlock elements a block
    edges FROM IN ...               codes in hex of values where some target changes its mind, so that a failure can be named
    edged FROM TO OUT ...           what they become
The inputs are made by the same rules in convert_golden_test.cc.

One deviation from astype is on purpose: ml_dtypes converts float64 through float32 and so rounds twice. Here float64 is first
rounded to odd, which makes the second rounding exact; the number of inputs where that differs is printed.
"""
import pathlib
import warnings
import zlib

import ml_dtypes
import numpy as np

warnings.simplefilter("ignore")  # overflow and NaN are what this is about

BLOCK = 65536
MAX64 = np.uint64(0xFFFFFFFFFFFFFFFF)
DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E3M4": ml_dtypes.float8_e3m4, "F8_E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "F6_E2M3": ml_dtypes.float6_e2m3fn, "F6_E3M2": ml_dtypes.float6_e3m2fn, "F4": ml_dtypes.float4_e2m1fn,
}
PACKED_BITS = {"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}


def unsigned(name):
    return np.dtype(f"u{np.dtype(DTYPES[name]).itemsize}")


def splitmix(index):
    z = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unpack(data, bits):
    """Codes of packed bytes: element i of a block lies in bits [i*bits, (i+1)*bits) of its little-endian bytes."""
    flat = np.unpackbits(data, bitorder="little").reshape(-1, bits)
    return np.packbits(flat, axis=1, bitorder="little").reshape(-1)


def pack(codes, bits):
    flat = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(flat.reshape(-1), bitorder="little")


F32_LOWS = [0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
F64_EXPONENTS = [0, 1, *range(863, 1160), 2046, 2047]
F64_LOWS = [0, 1, (1 << 44) - 1]


def f32_inputs():
    # Every upper half with lower halves around the rounding points of BF16 and F16; then random patterns.
    high = np.arange(65536, dtype=np.uint32)[:, None] << np.uint32(16)
    grid = (high | np.array(F32_LOWS, np.uint32)[None, :]).reshape(-1)
    return np.concatenate([grid, splitmix(np.arange(65536)).astype(np.uint32)])


def f64_inputs():
    # Both signs, exponents in and around every target's range, all 8-bit mantissas with low bits none, least, all.
    parts = [np.array([s << 63 | e << 52 for s in (0, 1) for e in F64_EXPONENTS], np.uint64)[:, None, None],
             (np.arange(256, dtype=np.uint64) << np.uint64(44))[None, :, None],
             np.array(F64_LOWS, np.uint64)[None, None, :]]
    grid = (parts[0] | parts[1] | parts[2]).reshape(-1)
    # Random values with few significant bits, so that ties of every width come up, and their neighbours.
    i = np.arange(1 << 18, dtype=np.uint64)
    r, q = splitmix(i * np.uint64(2)), splitmix(i * np.uint64(2) + np.uint64(1))
    exponent = np.uint64(863) + q % np.uint64(320)
    drop = np.uint64(52) - (q >> np.uint64(16)) % np.uint64(53)
    mantissa = ((r & np.uint64((1 << 52) - 1)) >> drop) << drop
    step = (q >> np.uint64(32)) % np.uint64(3) + MAX64  # -1, 0, 1 modulo 2^64
    random = (r & np.uint64(1 << 63)) | ((exponent << np.uint64(52)) + mantissa + step)
    return np.concatenate([grid, random])


def inputs(name):
    """Codes, one array element each."""
    if name == "F64":
        return f64_inputs()
    if name == "F32":
        return f32_inputs()
    if name in ("F16", "BF16"):
        return np.arange(65536, dtype=np.uint16)
    if name in PACKED_BITS:
        return unpack(splitmix(np.arange(3072)).astype(np.uint8), PACKED_BITS[name])
    return np.arange(256, dtype=np.uint8)


def round_to_odd(values):
    """float64 -> float32; what is inexact gets the odd neighbour, so that rounding again cannot meet a false tie."""
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    too_far = np.abs(near.astype(np.float64)) > np.abs(values)
    toward_zero = np.where(too_far, bits - np.uint32(1), bits)
    inexact = (near.astype(np.float64) != values) & ~np.isnan(values)
    return np.where(inexact, toward_zero | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def convert(source, target, codes):
    values = codes.view(DTYPES[source])
    if source == target:
        return codes
    if source == "F64" and target not in ("F32", "F16"):
        values = round_to_odd(values)
    return values.astype(DTYPES[target]).view(unsigned(target))


def edge_values():
    """Finite values at which some target changes its mind, as float64."""
    found = {0.0, 1.0, 1.5, 1.0 / 3.0, 65504.0, 3.0e38, 1e-45, 1e300, 5e-324}
    for name, dtype in DTYPES.items():
        if name == "F64":
            continue
        info = ml_dtypes.finfo(dtype)
        largest, smallest = float(info.max), float(info.smallest_subnormal)
        found |= {largest, float(info.tiny), smallest, smallest / 2, smallest * 1.5, float(info.tiny) - smallest / 2}
        ulp = 2.0 ** (np.floor(np.log2(largest)) - info.nmant)
        if name != "F32":
            found |= {largest + ulp / 2, largest + ulp, largest - ulp / 2}
        found |= {1 + float(info.eps) / 2, 1 + float(info.eps) * 1.5}
    return np.array(sorted(found), np.float64)


def edge_codes(source):
    dtype, word = DTYPES[source], unsigned(source)
    if source not in ("F64", "F32"):
        codes = np.unique(edge_values().astype(np.float32).astype(dtype).view(word))
    else:
        codes = edge_values().astype(dtype).view(word)
        if source == "F32":
            special = [0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0x7F7FFFFF]
        else:
            special = [0x7FF << 52, (0x7FF << 52) + 1, 0x7FF8 << 48, 0x7FF8123456789ABC, (0x7FF << 52) - 1]
        codes = np.unique(np.concatenate([codes, codes[codes > 0] - word.type(1), codes + word.type(1),
                                          np.array(special, word)]))
    if source in PACKED_BITS:
        return np.arange(1 << PACKED_BITS[source], dtype=np.uint8)
    sign = word.type(1 << (8 * word.itemsize - 1))
    codes = np.unique(np.concatenate([codes, codes ^ sign]))
    return np.concatenate([codes, np.zeros(-len(codes) % 4, word)])


def hex_codes(codes):
    return " ".join(f"{code:x}" for code in codes)


def main():
    lines = [f"# made by tests/make_convert_golden.py with NumPy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"]
    for source in DTYPES:
        codes, edges = inputs(source), edge_codes(source)
        assert len(codes) % 4 == 0 and len(edges) % 4 == 0
        lines.append(f"edges {source} {hex_codes(edges)}")
        for target in DTYPES:
            out = convert(source, target, codes)
            direct = codes.view(DTYPES[source]).astype(DTYPES[target]).view(unsigned(target))
            if (different := int((direct != out).sum())):
                print(f"{source} -> {target}: astype rounds twice in {different} of {len(codes)} inputs")
            for index in range(0, len(codes), BLOCK):
                block = out[index:index + BLOCK]
                data = pack(block, PACKED_BITS[target]) if target in PACKED_BITS else block
                lines.append(f"block {source} {target} {index // BLOCK} {zlib.crc32(data.tobytes()):08x}")
            if source != target:
                lines.append(f"edged {source} {target} {hex_codes(convert(source, target, edges))}")
    path = pathlib.Path(__file__).parent / "data" / "convert" / "golden.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} lines, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
