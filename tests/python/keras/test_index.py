"""The files: what Keras itself would have written, and where we write more or less than it."""
import json
import warnings

import h5py
import keras
import numpy as np
import pytest
import zoo

import shardwright
import shardwright.keras as sk

GIB = 2**30


def tree(path):
    """All of an HDF5 file: groups with attributes, datasets with type, attributes and bytes."""
    found = {}
    with h5py.File(path) as file:
        def visit(name, node):
            attributes = {key: str(value) for key, value in node.attrs.items()}
            if isinstance(node, h5py.Dataset):
                found[name] = (str(node.dtype), node.shape, np.asarray(node[()]).tobytes(), attributes)
            else:
                found[name] = attributes
        file.visititems(visit)
        found[""] = dict(file.attrs)
    return found


@pytest.fixture(scope="module", params=[m for m in zoo.MODELS if m not in zoo.TIED], ids=lambda make: make.__name__)
def model(request):
    return zoo.fill(request.param())


def test_one_file_is_the_tree_that_keras_writes(model, tmp_path):
    sk.save_weights(model, tmp_path / "ours.weights.h5")
    model.save_weights(tmp_path / "keras.weights.h5")
    assert tree(tmp_path / "ours.weights.h5") == tree(tmp_path / "keras.weights.h5")


def test_index_and_shards_are_keras_own(model, tmp_path):
    largest = max(array.nbytes for array in zoo.values(model))
    for limit_bytes in (largest, largest + 1, 3 * largest, 10**6):
        ours, theirs = tmp_path / f"ours{limit_bytes}", tmp_path / f"keras{limit_bytes}"
        ours.mkdir()
        theirs.mkdir()
        model.save_weights(theirs / "m.weights.json", max_shard_size=limit_bytes / GIB)
        sk.save_weights(model, ours / "m.weights.json", limit_bytes / GIB)
        check_same_set(ours, theirs)


def check_same_set(ours, theirs):
    a, b = (json.loads((folder / "m.weights.json").read_text()) for folder in (ours, theirs))
    assert a["weight_map"] == b["weight_map"] and list(a["weight_map"]) == list(b["weight_map"])
    assert a["metadata"]["total_size"] == b["metadata"]["total_size"]
    files = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in ours.iterdir()) == files
    for name in files:
        if name.endswith(".h5"):
            datasets, expected = ({key: row for key, row in tree(folder / name).items() if isinstance(row, tuple)} for folder in (ours, theirs))
            assert datasets == expected


def test_no_empty_groups_in_shards(tmp_path):
    """Keras leaves the named, empty group of a layer whose first variable went into the next shard."""
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    for path in tmp_path.glob("*.h5"):
        with h5py.File(path) as file:
            empty = []
            file.visititems(lambda name, node: empty.append(name) if isinstance(node, h5py.Group) and not len(node) else None)
            assert empty == []


def test_a_layer_spans_shards(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", 1040 / GIB)
    weight_map = json.loads((tmp_path / "m.weights.json").read_text())["weight_map"]
    assert weight_map["/layers/dense_1/vars"] == ["m_00000.weights.h5", "m_00001.weights.h5"] or len(weight_map["/layers/dense_1/vars"]) == 2


def test_variable_larger_than_the_limit(tmp_path):
    model = zoo.fill(zoo.sequential())
    before = zoo.values(model)
    with pytest.warns(UserWarning, match="layers/dense_1/vars/0.*gets a shard to itself"):
        sk.save_weights(model, tmp_path / "m.weights.json", "1000B")
    holders = [path for path in sorted(tmp_path.glob("*.h5")) if "layers/dense_1/vars/0" in shardwright.open(path)]
    assert len(holders) == 1 and list(shardwright.open(holders[0])) == ["layers/dense_1/vars/0"]
    with pytest.raises(shardwright.InvalidArgumentError) as caught:
        sk.save_weights(model, tmp_path / "strict.weights.json", "1000B", strict=True)
    assert caught.value.tensor == "layers/dense_1/vars/0"
    zoo.spoil(model)
    model.load_weights(tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


def test_dtypes_are_in_the_index(tmp_path):
    model = zoo.fill(zoo.half())
    sk.save_weights(model, tmp_path / "m.weights.json")
    metadata = json.loads((tmp_path / "m.weights.json").read_text())["metadata"]
    assert metadata["dtypes"] == {row.name: row.dtype for row in sk.weights_of(model)}
    assert set(metadata["dtypes"].values()) == {"bfloat16", "float16"}
    model.load_weights(tmp_path / "m.weights.json")


@pytest.mark.parametrize("rewrite", [lambda value: value if isinstance(value, list) else [value],
                                     lambda value: value[0] if isinstance(value, list) and len(value) == 1 else value], ids=["lists", "strings"])
def test_index_values_are_strings_or_lists(rewrite, tmp_path):
    model = zoo.fill(zoo.functional())
    before = zoo.values(model)
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=300 / GIB)
    index = json.loads((tmp_path / "m.weights.json").read_text())
    index["weight_map"] = {key: rewrite(value) for key, value in index["weight_map"].items()}
    (tmp_path / "m.weights.json").write_text(json.dumps(index))
    zoo.spoil(model)
    sk.load_weights(model, tmp_path / "m.weights.json")
    assert zoo.same(zoo.values(model), before)


@pytest.mark.parametrize("limit, nbytes", [(1, GIB), (0.5, GIB // 2), ("2", 2 * GIB), ("0.25", GIB // 4), ("5GB", 5 * 10**9), ("5GiB", 5 * GIB),
                                           ("300 MB", 300 * 10**6), (np.float32(0.5), GIB // 2), (None, None)])
def test_sizes(limit, nbytes):
    """A number is GiB, as in Keras, which takes no text with a unit."""
    from shardwright.keras.saving import shard_bytes
    assert shard_bytes(limit) == nbytes


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), "nan", "5 parrots", True, "-3", 1e300, 2**34, "1e12"])
def test_sizes_that_are_none(limit, tmp_path):
    """Keras takes NaN for no limit, and finds 0 too small for the first variable."""
    model = zoo.sequential()
    with pytest.raises(shardwright.InvalidArgumentError):
        sk.save_weights(model, tmp_path / "m.weights.json", limit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["m.h5", "m.hdf5", "m.json", "zweights.json", "m.keras", "m.npz", "m.ckpt"])
def test_names_that_say_nothing(name, tmp_path):
    with pytest.raises(shardwright.InvalidArgumentError, match="layout"):
        sk.save_weights(zoo.sequential(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_files_name(tmp_path):
    for name in ("m.weights.json", "m.weights.h5", "m.safetensors"):
        (tmp_path / name).mkdir()
        with pytest.raises(shardwright.AlreadyExistsError, match="directory"):
            sk.save_weights(zoo.sequential(), tmp_path / name)
        assert list((tmp_path / name).iterdir()) == []


def test_limit_for_one_file(tmp_path):
    """Keras warns, and writes another file than the one asked for."""
    with pytest.raises(shardwright.InvalidArgumentError, match="no shards"):
        sk.save_weights(zoo.sequential(), tmp_path / "m.weights.h5", 1)
    assert list(tmp_path.iterdir()) == []


def test_fewer_shards_leave_no_stale_ones(tmp_path):
    model = zoo.fill(zoo.sequential())
    (tmp_path / "other_00001.weights.h5").write_bytes(b"not ours")
    sk.save_weights(model, tmp_path / "m.weights.json", "500B")
    many = len(list(tmp_path.glob("m_*.h5")))
    sk.save_weights(model, tmp_path / "m.weights.json", "1200B")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert 1 < len(left) - 2 < many
    assert "other_00001.weights.h5" in left and not [name for name in left if name.startswith(".")]
    assert not shardwright.verify(tmp_path / "m.weights.json").findings


def test_overwrite_is_asked_of_the_whole_set(tmp_path):
    model = zoo.fill(zoo.sequential())
    sk.save_weights(model, tmp_path / "m.weights.json", "1kB")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(shardwright.AlreadyExistsError):
        sk.save_weights(zoo.fill(model, 5), tmp_path / "m.weights.json", "1kB", overwrite=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_failed_save_leaves_the_old_set(tmp_path):
    """Keras has written some shards by then, and no index."""
    class Failing(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(700, 700))
            super().build(shape)

        def call(self, x):
            return x

        def save_own_variables(self, store):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls > 1:
                raise OSError("the layer cannot")
            store["0"] = np.ones((700, 700))  # large: made again when its turn comes, and then it fails
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6), Failing()])
    sk.save_weights(zoo.fill(zoo.sequential()), tmp_path / "m.weights.json", "1kB")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError, match="the layer cannot"):
        sk.save_weights(model, tmp_path / "m.weights.json", "1kB")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_equal_models_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        keras.utils.clear_session()  # layers get the same names again
        sk.save_weights(zoo.fill(zoo.functional()), tmp_path / name / "m.weights.json", "300B", threads=1 + (name == "b"))
    a, b = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert a == b and len(a) > 2


def test_shared_variables_are_stored_once(tmp_path):
    model = zoo.fill(zoo.tied())
    sk.save_weights(model, tmp_path / "m.weights.h5")
    with shardwright.open(tmp_path / "m.weights.h5") as checkpoint:
        assert checkpoint.ties == {"layers/embedding_1/vars/0": "embedding/vars/0"}
        assert checkpoint.nbytes == 4 * (10 * 6 + 6 * 6 + 6)


def test_bools_count_one_bit(tmp_path):
    """As in Keras's sums."""
    class Mask(keras.layers.Layer):
        def build(self, shape):
            self.mask = self.add_weight(shape=(64,), dtype="bool", initializer="zeros", trainable=False)
            super().build(shape)

        def call(self, x):
            return x
    model = keras.Sequential([keras.Input((6,)), Mask()])
    sk.save_weights(model, tmp_path / "m.weights.json")
    model.save_weights(tmp_path / "k.weights.json", max_shard_size=1)
    ours, theirs = (json.loads((tmp_path / f"{who}.weights.json").read_text()) for who in "mk")
    assert ours["metadata"]["total_size"] == theirs["metadata"]["total_size"] == 8.0


def test_unbuilt_model(tmp_path):
    model = keras.Sequential([keras.layers.Dense(3)])
    for call in (sk.save_weights, sk.load_weights):
        with pytest.raises(shardwright.InvalidArgumentError, match="must be built"):
            call(model, tmp_path / "m.weights.json")


def test_no_model(tmp_path):
    with pytest.raises(shardwright.InvalidArgumentError, match="no Keras model"):
        sk.weights_of({"a": 1})


def test_remote_paths_are_refused():
    """Keras copies the index only, and removes the shards."""
    with pytest.raises(shardwright.UnsupportedError):
        sk.save_weights(zoo.sequential(), "gs://bucket/m.weights.json")


def test_progress(tmp_path):
    model = zoo.fill(zoo.sequential())
    seen = []
    sk.save_weights(model, tmp_path / "m.weights.json", progress=lambda phase, done, total: seen.append((phase, done, total)))
    assert seen and seen[-1][1] == seen[-1][2]
    seen.clear()
    sk.load_weights(model, tmp_path / "m.weights.json", progress=lambda phase, done, total: seen.append((phase, done, total)))
    done = [d for _, d, _ in seen]
    assert {phase for phase, _, _ in seen} == {"read"} and done == sorted(done) and seen[-1][1] == seen[-1][2] > 0


def test_a_model_without_weights(tmp_path):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.5)])
    for name in ("m.weights.json", "m.weights.h5"):
        sk.save_weights(model, tmp_path / name)
        assert sk.load_weights(model, tmp_path / name).weights == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.load_weights(tmp_path / name)
