"""Makes the hostile safetensors files: one file per lie (and a few odd but legal ones), named for it.

What our reader says of each is in safetensors_hostile_test.cc; check_safetensors_library.py says what the library's own says.
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "safetensors"


def info(dtype="U8", shape=(1,), begin=0, end=1):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def file(header, data=b"\0", length=None):
    """header: bytes, text or what json makes a text of."""
    if not isinstance(header, (bytes, str)):
        header = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def field(text, data=b"\0"):
    """One tensor `a`, its info given as text."""
    return file('{"a":{' + text + "}}", data)


GOOD = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
two = lambda b: {"a": info("U8", [4], 0, 4), "b": b}

FILES = {
    # 1.3, in the order of the table
    "empty": b"",
    "seven_bytes": b"\2\0\0\0\0\0\0",
    "header_length_over_limit": file("{}", b"", 100_000_001),
    "header_length_at_limit": file("{}", b"", 100_000_000),
    "header_length_huge": b"\x3c\0\0\0\0\xff\xff\xff",
    "header_length_only": struct.pack("<Q", 60),
    "git_lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\nsize 4096\n",
    "hole_at_start": file({"a": info("U8", [1], 1, 2)}, b"\0\0"),
    "hole_between": file(two(info("U8", [1], 5, 6)), bytes(6)),
    "overlap": file(two(info("U8", [2], 3, 5)), bytes(5)),
    "same_range_twice": file(two(info("U8", [4], 0, 4)), bytes(4)),
    "end_before_begin": file({"a": info("U8", [1], 1, 0)}),
    "trailing_junk": file({"a": info()}, b"\0polyglot"),
    "short_data": file({"a": info("U8", [4], 0, 4)}, b"\0\0"),
    "duplicate_name_same_info": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
    "duplicate_name_other_info": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', bytes(3)),
    "duplicate_name_of_nothing": file('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b""),
    "duplicate_name_by_escape": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', bytes(2)),
    "duplicate_metadata": file('{"__metadata__":{},"__metadata__":{},' + GOOD[1:]),
    "duplicate_key_in_metadata": file('{"__metadata__":{"k":"1","k":"2"},' + GOOD[1:]),
    "metadata_null": file('{"__metadata__":null,' + GOOD[1:]),
    "metadata_value_int": file('{"__metadata__":{"k":1},' + GOOD[1:]),
    "metadata_value_null": file('{"__metadata__":{"k":null},' + GOOD[1:]),
    "metadata_value_object": file('{"__metadata__":{"k":{}},' + GOOD[1:]),
    "metadata_list": file('{"__metadata__":[],' + GOOD[1:]),
    "metadata_string": file('{"__metadata__":"x",' + GOOD[1:]),
    "dtype_unknown": file({"a": info("F128", [1], 0, 16)}, bytes(16)),
    "dtype_lower_case": file({"a": info("f32", [1], 0, 4)}, bytes(4)),
    "extra_field": field('"dtype":"U8","extra":{"x":[1,2.5,null]},"shape":[1],"data_offsets":[0,1]'),
    "duplicate_field": field('"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]'),
    "duplicate_extra_field": field('"dtype":"U8","x":1,"x":2,"shape":[1],"data_offsets":[0,1]'),
    "missing_field": field('"dtype":"U8","data_offsets":[0,1]'),
    "info_as_array": file('{"a":["U8",[1],[0,1]]}'),
    "shape_fraction": field('"dtype":"U8","shape":[1.0],"data_offsets":[0,1]'),
    "shape_exponent": field('"dtype":"U8","shape":[1e0],"data_offsets":[0,1]'),
    "shape_minus_zero": field('"dtype":"U8","shape":[-0],"data_offsets":[0,0]', b""),
    "shape_negative": field('"dtype":"U8","shape":[-1],"data_offsets":[0,1]'),
    "shape_text": field('"dtype":"U8","shape":["1"],"data_offsets":[0,1]'),
    "shape_over_64_bits": field('"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]'),
    "shape_number": field('"dtype":"U8","shape":1,"data_offsets":[0,1]'),
    "offset_fraction": field('"dtype":"U8","shape":[1],"data_offsets":[0.0,1]'),
    "offset_negative": field('"dtype":"U8","shape":[1],"data_offsets":[-1,0]'),
    "offset_over_64_bits": field('"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]'),
    "offsets_one": field('"dtype":"U8","shape":[1],"data_offsets":[0]'),
    "offsets_three": field('"dtype":"U8","shape":[1],"data_offsets":[0,1,1]'),
    "trailing_nul": file(GOOD + "\0\0\0"),
    "trailing_garbage": file(GOOD + "x"),
    "top_level_array": file("[" + GOOD + "]"),
    "byte_order_mark": file("\ufeff" + GOOD),
    "nan_literal": field('"dtype":"U8","shape":[NaN],"data_offsets":[0,1]'),
    "comment": file("/* x */" + GOOD),
    "leading_zero": field('"dtype":"U8","shape":[01],"data_offsets":[0,1]'),
    "name_escaped": file('{"\\u00e9":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\7"),
    "name_lone_surrogate": file('{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
    "name_control_character": file('{"a\tb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
    "f4_whole_bytes": file({"a": info("F4", [4], 0, 2)}, b"\x12\x34"),
    "f6_whole_bytes": file({"a": info("F6_E2M3", [4], 0, 3)}, b"\1\2\3"),
    "f4_odd": file({"a": info("F4", [3], 0, 2)}, bytes(2)),
    "f6_odd": file({"a": info("F6_E3M2", [1], 0, 1)}),
    # 1.1, 1.2 and 1.7
    "header_not_utf8": file(b"\xff", b""),
    "name_not_utf8": file(b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
    "header_cut": file("{", b""),
    "header_length_zero": file("", b""),
    "no_tensors": file("{}      ", b""),
    "no_tensors_with_data": file("{}", b"\0"),
    "spaces_around": file(" \t\r\n" + GOOD + " \r\n\t", b"\7"),
    "nothing_to_store": file({"a": info("I32", [2, 0], 0, 0)}, b""),
    "nothing_past_the_end": file({"a": info("I32", [0], 7, 7)}, b""),
    "size_differs_from_shape": file({"a": info("I32", [2, 2], 0, 4)}, bytes(4)),
    "shape_overflow": file({"a": info("I32", [2, 18446744073709551614], 0, 16)}, bytes(16)),
    "shape_overflow_in_bits": file({"a": info("I32", [2, 9223372036854775807], 0, 16)}, bytes(16)),
    "shape_overflow_before_zero": file({"a": info("I32", [18446744073709551615, 18446744073709551615, 0], 0, 0)}, b""),
    "shape_unsigned_only": file({"a": info("I32", [0, 18446744073709551615], 0, 0)}, b""),
    "liar": file({"a": info("F32", [1024, 1024], 0, 4194304)}),
    "nested_200_deep": field('"x":' + "[" * 200 + "]" * 200 + ',"dtype":"U8","shape":[1],"data_offsets":[0,1]'),
    "name_empty": file({"": info()}, b"\7"),
    "name_traversal": file({"../../etc/passwd": info()}, b"\7"),
    "name_metadata_in_disguise": file('{"__metadat\\u0061__":{"format":"pt"},' + GOOD[1:], b"\7"),
    "unaligned": file({"a": info("U8", [1], 0, 1), "b": info("F32", [1], 1, 5)}, bytes(5)),
    "order_is_not_offset_order": file({"b": info("U8", [1], 1, 2), "a": info("U8", [1], 0, 1)}, b"\1\2"),
    "attack_ten_names_one_range": file({f"weight_{i}": info("U8", [4, 4], 0, 16) for i in range(10)}, bytes(16)),
    "attack_header_of_1000_bytes": struct.pack("<Q", 1000) + b"{}",
    # other things under this name
    "html_page": b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n",
    "pickle": b"\x80\x02}q\0(X\1\0\0\0aq\1K\1u." + bytes(64),
    "zip_archive": b"PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" + bytes(64),
    "gguf": b"GGUF\3\0\0\0" + bytes(64),
    "all_zeros": bytes(512),
}

if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for old in HERE.glob("*.safetensors"):
        old.unlink()
    for name, content in FILES.items():
        (HERE / f"{name}.safetensors").write_bytes(content)
