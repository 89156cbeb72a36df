"""Layouts as `map` writes them, given to jaxlib's and torch's own parsers: what matters is the box of every device that comes out."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import raw

AXES = {"a": 2, "b": 4}
THREE = {"x": 2, "y": 2, "z": 2}
RULES = {  # rank by rank: every way to deal out two axes, some of three
    "two": (AXES, {"s.none": [], "v.a": ["a"], "v.b": ["b"], "v.ab": [["a", "b"]], "v.ba": [["b", "a"]], "m.ab": ["a", "b"], "m.ba": ["b", "a"],
                   "m.0b": [None, "b"], "m.a0": ["a", None], "m.00": [None, None], "m.ab0": [["a", "b"], None], "m.0ba": [None, ["b", "a"]]}),
    "three": (THREE, {"v.zxy": [["z", "x", "y"]], "m.zx.y": [["z", "x"], "y"], "c.x0z": ["x", None, "z"], "c.y": ["y"], "c.xz0y": [["x", "z"], None, "y"],
                      "c.zyx": ["z", "y", "x"]}),
    "one": ({"d": 1, "m": 8}, {"m.dm": ["d", "m"], "m.md": [["m", "d"], None]}),
}
RANK = {"s": 0, "v": 1, "m": 2, "c": 3}

# In a process of its own: eight devices must be asked for before jax wakes.
JAX_BOXES = """
import json, sys
import numpy as np
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.op_shardings import op_sharding_to_numpy_indices
from jaxlib.mlir.dialects import sdy
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def box(index, shape):
    ranges = [part.indices(size) for part, size in zip(index, shape)]
    return [[begin for begin, _, _ in ranges], [end - begin for begin, end, _ in ranges]]

context = ir.Context()
sdy.register_dialect(context)
out = {}
for case in json.load(sys.stdin):
    mesh, out[case["name"]] = case["mesh"], {}
    devices = np.array(jax.devices()).reshape(mesh["shape"])
    assert str(ir.Attribute.parse(mesh["shardy"], context)) == mesh["shardy"]
    def by_axes(dims):
        spec = PartitionSpec(*[tuple(axes) if axes else None for axes in dims])
        index = NamedSharding(Mesh(devices, tuple(mesh["axis_names"])), spec).devices_indices_map(tuple(row["shape"]))
        return [box(index[device], row["shape"]) for device in devices.flat]
    for row in case["tensors"]:
        attribute = ir.Attribute.parse(row["shardy"], context)
        assert str(attribute) == row["shardy"]
        read = [[str(sdy.AxisRefAttr(axis).name) for axis in sdy.DimensionShardingAttr(dim).axes]
                for dim in sdy.TensorShardingAttr(attribute).dimension_shardings]
        tiles = op_sharding_to_numpy_indices(xla_client.HloSharding.from_string(row["gspmd"]), tuple(row["shape"]), devices.size)
        spec = [[] if entry is None else [entry] if isinstance(entry, str) else entry for entry in row["partition_spec"]]
        out[case["name"]][row["name"]] = {"gspmd": [box(tile, row["shape"]) for tile in tiles], "shardy": by_axes(read), "spec": by_axes(spec)}
json.dump(out, sys.stdout)
"""


@pytest.fixture(scope="module")
def shown(shardwright, tmp_path_factory):
    """What `map` says of every case."""
    folder, out = tmp_path_factory.mktemp("layout"), []
    for name, (mesh, rules) in RULES.items():
        size = 2 * math.prod(mesh.values())
        path, layout = folder / f"{name}.safetensors", folder / f"{name}.json"
        raw.write(path, {tensor: ("U8", [size] * RANK[tensor[0]], bytes(size ** RANK[tensor[0]])) for tensor in rules})
        layout.write_text(json.dumps({"mesh": {"axis_names": list(mesh), "shape": list(mesh.values())}, "rules": rules}))
        out.append(shardwright.json("map", "--long", "--layout", layout, path) | {"name": name})
    return out


def boxes(row):
    return [[box["start"], box["extent"]] for box in row["boxes"]]


def test_jaxlib_reads_the_same_boxes(shown):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", JAX_BOXES], input=json.dumps(shown), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    read = json.loads(done.stdout)
    for case in shown:
        for row in case["tensors"]:
            for text, theirs in read[case["name"]][row["name"]].items():
                if row["shape"]:
                    assert theirs == boxes(row), (case["name"], row["name"], text)


def test_torch_reads_the_same_boxes(shown):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
    from torch.distributed.tensor.placement_types import _StridedShard
    names = {"Shard": lambda dim: Shard(dim), "Replicate": Replicate, "_StridedShard": lambda dim, sf: _StridedShard(dim, split_factor=sf)}
    for case in shown:
        shape = tuple(case["mesh"]["shape"])
        for row in case["tensors"]:
            placements = eval(row["placements"], {"__builtins__": {}}, names)
            assert repr(placements) == row["placements"]
            for position, ours in enumerate(boxes(row)):
                at = [int(i) for i in np.unravel_index(position, shape)]
                extent, start = _compute_local_shape_and_global_offset(tuple(row["shape"]), shape, at, placements)
                assert [list(start), list(extent)] == ours, (case["name"], row["name"], position)


def test_a_rule_may_be_any_of_the_texts(shardwright, shown, tmp_path):
    for case in shown:
        for text in ("gspmd", "shardy", "placements"):
            layout = tmp_path / "texts.json"
            mesh = {key: case["mesh"][key] for key in ("axis_names", "shape")}
            layout.write_text(json.dumps({"mesh": mesh, "match": "fullmatch", "rules": {row["name"]: row[text] for row in case["tensors"]}}))
            again = shardwright.json("map", "--long", "--layout", layout, case["path"])
            assert [boxes(row) for row in again["tensors"]] == [boxes(row) for row in case["tensors"]], text


def rule_of_keras(layout_map, name):
    try:
        found = layout_map[name]
    except ValueError:
        return "two"
    return "none" if found is None else list(found.axes) + [None] * (2 - len(found.axes))


def test_rules_decide_as_in_keras(shardwright, tmp_path):
    """With "fullmatch", for every name: the layout, none, or two rules that match."""
    from keras import distribution
    leaves = ["kernel", "bias", "gamma", "query/kernel"]
    names = [f"{stem}/{leaf}" for stem in ("dense", "dense_1", "block_2/attention", "model/dense") for leaf in leaves]
    patterns = [".*kernel", "dense.*", "dense/kernel", r"block_\d+/.*bias", "(?i).*GAMMA", "bias", ".*/attention/query/.*", r"model\/dense/[bg].*", "dense_1/kernel|x"]
    raw.write(tmp_path / "m.safetensors", {name: ("U8", [8, 8], bytes(64)) for name in names})
    rng, seen = np.random.default_rng(5), set()
    for _ in range(12):
        rules = {patterns[i]: [None, "model"] if i % 2 else ["model"] for i in rng.permutation(len(patterns))[:rng.integers(1, 6)]}
        theirs = distribution.LayoutMap(distribution.DeviceMesh((2, 4), ("batch", "model"), [f"cpu:{i}" for i in range(8)]))
        for pattern, axes in rules.items():
            theirs[pattern] = tuple(axes)
        layout = {"mesh": {"axis_names": ["batch", "model"], "shape": [2, 4]}, "match": "fullmatch", "rules": rules}
        (tmp_path / "l.json").write_text(json.dumps(layout))
        wanted = {name: rule_of_keras(theirs, name) for name in names}
        shown = shardwright.json("map", "--layout", tmp_path / "l.json", tmp_path / "m.safetensors", code=int("two" in wanted.values()))
        found = {row["name"]: "two" if "rule" not in row else "none" if row["rule"] is None else row["partition_spec"] for row in shown["tensors"]}
        assert found == wanted, rules
        seen.update(map(str, found.values()))
    assert seen == {"none", "two", "['model', None]", "[None, 'model']"}


@pytest.mark.parametrize("target", ["part.safetensors", "part.weights.h5", "part"])
def test_the_parts_are_the_whole(shardwright, rng, tmp_path, target):
    """Every rank's part, put where its metadata says, in each format."""
    arrays = {"rows": rng.standard_normal((10, 6)).astype("f4"), "columns": rng.standard_normal((6, 9)).astype("f4"),
              "both": rng.standard_normal((5, 3, 8)).astype("f4"), "scalar": np.float32(3), "empty": np.zeros((0, 4), "f4")}
    source, layout = tmp_path / "whole.safetensors", tmp_path / "layout.toml"
    raw.write(source, {name: ("F32", list(array.shape), array.tobytes()) for name, array in arrays.items()})
    layout.write_text('uneven = "chunk"\n[rules]\nrows = ["x"]\ncolumns = ["", ["y", "x"]]\nboth = ["y", "", "x"]\nempty = ["x"]\n')
    chunked = tmp_path / "whole.weights.h5"
    shardwright.copy(source, chunked)
    found = {name: np.full(array.shape, np.nan, "f4") for name, array in arrays.items()}
    for rank in range(6):
        place = tmp_path / f"{rank}-{target}"
        shardwright.copy(chunked if rank % 2 else source, place, "--mesh", "x=2,y=3", "--layout", layout, "--rank", rank)
        part = json.loads(shardwright.json("info", place)["metadata"]["shardwright.part"])
        assert part["axis_names"] == ["x", "y"] and part["shape"] == [2, 3] and part["rank"] == rank
        for row in shardwright.json("ls", place):
            at = part["tensors"][row["name"]]
            assert at["shape"] == list(arrays[row["name"]].shape)
            values = np.array(shardwright.json("show", place, row["name"])["values"], "f4").reshape(row["shape"])
            window = tuple(slice(start, start + size) for start, size in zip(at["start"], row["shape"]))
            assert not row["shape"] or found[row["name"]][window].shape == values.shape
            found[row["name"]][window] = values
    for name, array in arrays.items():
        assert np.array_equal(found[name], array), name


def test_of_a_part_only_its_bytes_are_read(shardwright, tmp_path):
    raw.write_sparse(tmp_path / "whole.safetensors", {"w": ("F32", [4096, 2048]), "v": ("F32", [64, 4096])})
    (tmp_path / "l.json").write_text('{"rules": {"w": ["x"]}}')
    summary = shardwright.copy(tmp_path / "whole.safetensors", tmp_path / "part.safetensors", "--mesh", "x=8", "--layout", tmp_path / "l.json", "--rank", 3)
    part = 4096 * 2048 * 4 // 8 + 64 * 4096 * 4
    assert part <= summary["bytes_read"] <= 1.02 * part and part < summary["bytes_written"] < 1.001 * part


def test_parts_of_compressed_chunks(shardwright, rng, tmp_path):
    """h5py's chunks, cut across: each is decoded for the devices that need it."""
    import h5py
    array = rng.integers(0, 1000, (50, 40)).astype("i4")
    with h5py.File(tmp_path / "chunks.h5", "w") as file:
        file.create_dataset("w", data=array, chunks=(7, 9), compression="gzip", shuffle=True)
    for rank, window in enumerate([np.s_[:25, :20], np.s_[:25, 20:], np.s_[25:, :20], np.s_[25:, 20:]]):
        place = tmp_path / f"{rank}.safetensors"
        (tmp_path / "l.json").write_text('{"rules": {"w": ["x", "y"]}}')
        shardwright.copy(tmp_path / "chunks.h5", place, "--mesh", "x=2,y=2", "--layout", tmp_path / "l.json", "--rank", rank)
        assert raw.read(place)["w"][2] == array[window].tobytes()


def test_pictures_are_xml_whatever_the_names(shardwright, tmp_path):
    from xml.etree import ElementTree
    names = ["<&>\"'", "\x01\u202e", "\u0645\u0635\u0641\u0648\u0641\u0629", "x" * 500]
    raw.write(tmp_path / "odd.safetensors", {name: ("U8", [4, 0, 6], b"") for name in names} | {"s": ("U8", [], b"1"), "v": ("U8", [300], bytes(300))})
    (tmp_path / "l.json").write_text('{"uneven": "chunk", "rules": {"^v": ["m"], "<": ["m"]}}')
    for name in [*names, "s", "v"]:
        for mesh in ("m=1", "m=3", "a=2,m=2,b=70", "m=5000"):
            picture = tmp_path / "p.svg"
            shardwright.run("map", "--mesh", mesh, "--layout", tmp_path / "l.json", "--svg", picture, tmp_path / "odd.safetensors", name[0] + "*")
            assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
            assert picture.stat().st_size < 2_000_000


PICTURES = {"layout-columns": '"attn" = ["", "model"]', "layout-rows": 'uneven = "chunk"\nrules.attn = [["data", "model"]]'}


def picture(shardwright, folder, rules):
    """A picture as the documentation has it."""
    raw.write(folder / "model.safetensors", {"h.0.attn.q.weight": ("F32", [50, 64], bytes(50 * 64 * 4)), "h.0.norm.weight": ("F32", [64], bytes(256))})
    (folder / "layout.toml").write_text(("" if "rules" in rules else "[rules]\n") + rules + "\n")
    shardwright.run("map", "--mesh", "data=2,model=4", "--layout", folder / "layout.toml", "--svg", folder / "p.svg", folder / "model.safetensors")
    return (folder / "p.svg").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_in_the_documentation_are_drawn_by_map(shardwright, tmp_path, name):
    drawn = picture(shardwright, tmp_path, PICTURES[name])
    assert drawn == (pathlib.Path(__file__).parents[2] / "docs" / f"{name}.svg").read_text()


def test_the_page_on_layouts_says_what_happens(shardwright, tmp_path):
    """Its layout file, its error and its part of one device, over a model with its names."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "layouts.md").read_text()
    (tmp_path / "layout.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.S).group(1))
    shapes = {"h.0.attn.q.weight": [12, 4], "h.0.mlp.up.weight": [16, 4], "embed.weight": [1000, 512], "norm.weight": [4]}
    model, part = tmp_path / "model.safetensors", tmp_path / "part-5.safetensors"
    raw.write(model, {name: ("U8", shape, bytes(math.prod(shape))) for name, shape in shapes.items()})
    shown = shardwright.json("map", "--layout", tmp_path / "layout.toml", model)
    assert [row["shard_shape"] for row in shown["tensors"]] == [[3, 4], [2, 4], [250, 512], [4]] and shown["unused_rules"] == []
    shardwright.copy("--layout", tmp_path / "layout.toml", "--rank", 5, model, part)
    said, found = json.loads(re.search(r"```json\n(.*?)```", page, re.S).group(1)), json.loads(shardwright.json("info", part)["metadata"]["shardwright.part"])
    assert found["tensors"]["embed.weight"] == said["tensors"].pop("embed.weight") and {**found, "tensors": {}} == said
    raw.write(model, {"h.0.attn.q.weight": ("U8", [10, 4], bytes(40))})
    assert re.search(r"^    (tensor '.*)$", page, re.M).group(1) in shardwright.run("map", "--layout", tmp_path / "layout.toml", model, code=1).stdout


def test_the_page_on_layouts_names_what_is_there():
    """Headers, what they declare, options of Python and names of the package."""
    import shardwright
    root = pathlib.Path(__file__).parents[2]
    page, source = (root / "docs" / "layouts.md").read_text(), root / "src" / "shardwright"
    headers = set(re.findall(r"`([a-z_]+/[a-z_]+\.h)`", page)) | {f"layout/{name}" for name in re.findall(r"`([a-z_]+\.h)`", page)}
    assert len(headers) >= 10 and [name for name in headers if not (source / name).is_file()] == []
    declared = "".join(path.read_text() for path in source.glob("*/*.h"))
    functions = set(re.findall(r"`([a-z_]+)\(\)`", page)) - {"relayout", "load_own_variables"}
    python = {name for name in functions if hasattr(shardwright, name)} | {"tensor_parallel"}
    assert len(functions) > 5 and [name for name in functions - python if f" {name}(" not in declared] == []
    assert [name for name in re.findall(r"shardwright\.([a-z_]+)\(", page) if not hasattr(shardwright, name)] == []
    for module, name in set(re.findall(r"shardwright\.(jax|torch|keras)\.([a-z_]+)", page)):
        assert re.search(rf"\b{name}\b", (root / "python" / "shardwright" / module / "__init__.py").read_text()), (module, name)


def test_narrow_blocks_have_no_numbers_that_run_together(shardwright, tmp_path):
    raw.write(tmp_path / "m.safetensors", {"w": ("U8", [64, 128], bytes(8192))})
    (tmp_path / "l.json").write_text('{"rules": {"w": [null, "m"]}}')
    shardwright.run("map", "--mesh", "m=64", "--layout", tmp_path / "l.json", "--svg", tmp_path / "p.svg", tmp_path / "m.safetensors")
    numbers = re.findall(r'text-anchor="middle">(\d+)<', (tmp_path / "p.svg").read_text())
    assert numbers == [str(i) for i in range(64)]  # of the mesh alone


def test_hostile_layout_files_are_errors(shardwright, tmp_path):
    raw.write(tmp_path / "m.safetensors", {"w": ("U8", [8, 8], bytes(64))})
    mesh = '"mesh": {"axis_names": ["a", "b"], "shape": [2, 4]}'
    texts = ["", "{", "[" * 100_000, '{"rules":\0}', f"{{{mesh}, {mesh}}}", f'{{{mesh}, "rules": {{"w": {"[" * 5000}{"]" * 5000}}}}}', f'{{{mesh}, "rules": {{"w": ["a"], "w": ["b"]}}}}',
             f'{{{mesh}, "rules": {{"w": [{"null," * 10**6}null]}}}}', f'{{{mesh}, "rules": {{"{"a" * 70_000}": ["a"]}}}}', f'{{{mesh}, "rules": {{"{"(" * 300}w{")" * 300}": ["a"]}}}}',
             '{"mesh": {"axis_names": ["a"], "shape": [1048577]}}', '{"mesh": {"axis_names": ["a"], "shape": [2], "devices": [0, "0"]}}', '{"mesh": null}', f'{{{mesh}, "rules": null}}',
             f'{{{mesh}, "rules": {{"w": {{"a": 1}}}}}}', f'{{{mesh}, "rules": {{"w": "{{devices=[{"1," * 100_000}8]<=[8]}}"}}}}', f'{{{mesh}, "rules": {{"w": "(Shard(0), Shard(99999999999999999999))"}}}}']
    for number, text in enumerate(texts):
        (tmp_path / "l.json").write_bytes(text.encode())
        done = shardwright.run("map", "--layout", tmp_path / "l.json", tmp_path / "m.safetensors", code=2, timeout=20)
        assert "l.json" in done.stderr or number == 0, (number, done.stderr[:300])
        assert len(done.stderr) < 2000 and not done.stdout, (number, len(done.stderr))
