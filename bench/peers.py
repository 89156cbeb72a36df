"""One peer at one job, in a process of its own; prints {"seconds", "peak_rss_bytes", ...}. Imports are not timed.

Usage: python bench/peers.py JOB ARGS...
"""

import glob
import json
import os
import subprocess
import resource
import sys
import time


def shards(directory):
    return sorted(glob.glob(os.path.join(directory, "*.safetensors")))


def report(seconds, **more):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak, **more}))


def hub_reshard(source, target, size):
    """The usual way to another shard size: load everything, save it again."""
    from huggingface_hub import save_torch_state_dict
    from safetensors.torch import load_file

    os.makedirs(target)
    start = time.perf_counter()
    tensors = {}
    for path in shards(source):
        tensors |= load_file(path)
    save_torch_state_dict(tensors, target, max_shard_size=size)
    os.sync()
    report(time.perf_counter() - start)


def torch_save(source, target):
    """The same tensors in one file."""
    from safetensors.torch import load_file
    import torch

    torch.save({name: tensor for path in shards(source) for name, tensor in load_file(path).items()}, target)
    report(0)


def torch_to_safetensors(how, source, target):
    """how: "read", or "mmap", which leaves reading to save_file()."""
    from safetensors.torch import save_file
    import torch

    os.makedirs(os.path.dirname(target))
    start = time.perf_counter()
    save_file(torch.load(source, weights_only=True, map_location="cpu", mmap=how == "mmap"), target)
    os.sync()
    report(time.perf_counter() - start)


def safetensors_load(source):
    """load_file alone maps the file and reads nothing: only with clone() are the values in memory of one's own."""
    from safetensors.torch import load_file
    import torch

    torch.empty(1).clone()
    start = time.perf_counter()
    tensors = {}
    for path in shards(source):
        tensors |= {name: tensor.clone() for name, tensor in load_file(path).items()}
    seconds = time.perf_counter() - start
    total = sum(int(t.view(torch.uint8).sum(dtype=torch.int64)) for t in tensors.values())
    report(seconds, sum=total)


def make(target, shard_size):
    """A bf16 model of 1.1 billion parameters: the shapes of TinyLlama, random bits that are all finite."""
    from huggingface_hub import save_torch_state_dict
    import torch

    layers, hidden, kv, wide, vocabulary = 22, 2048, 256, 5632, 32000
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {
            p + "self_attn.q_proj.weight": (hidden, hidden),
            p + "self_attn.k_proj.weight": (kv, hidden),
            p + "self_attn.v_proj.weight": (kv, hidden),
            p + "self_attn.o_proj.weight": (hidden, hidden),
            p + "mlp.gate_proj.weight": (wide, hidden),
            p + "mlp.up_proj.weight": (wide, hidden),
            p + "mlp.down_proj.weight": (hidden, wide),
            p + "input_layernorm.weight": (hidden,),
            p + "post_attention_layernorm.weight": (hidden,),
        }
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator, dtype=torch.bfloat16) for name, shape in shapes.items()}
    os.makedirs(target)
    save_torch_state_dict(tensors, target, max_shard_size=shard_size)


# ---- Keras models: two gigabytes of variables, built and filled before the clock starts

def keras_model(filled=True):
    import keras
    import numpy as np
    from keras import layers

    x = inputs = keras.Input((4,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(16384, 4096, embeddings_initializer="zeros")(x))
    for _ in range(28):
        x = layers.Dense(4096, kernel_initializer="zeros")(x)
    model = keras.Model(inputs, x)
    for i, variable in enumerate(model.variables if filled else ()):
        variable.assign(np.arange(i, i + int(np.prod(variable.shape)), dtype="float32").reshape(variable.shape))
    return model


def peak_since_now():
    """Resident bytes now, and a function that says how far they rose above that.

    Building a model took the memory that was touched beforehand (see run.py): what is measured next gets as much again.
    """
    subprocess.run([os.environ["BENCH_TOUCH"], str(6 * 2**30)], check=True)

    def high():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    begun = high()
    return lambda: high() - begun


def on_keras_model(ours, what, path):
    """what: "save" or "load". Saves end with everything on the disk; loads with every value in its variable."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import shardwright.keras as sk

    model = keras_model()
    if what == "load":
        import numpy as np
        for variable in model.variables:
            variable.assign(np.full(variable.shape, 7, "float32"))
    call = {("ours", "save"): lambda: sk.save_weights(model, path, 0.25, progress=None),
            ("keras", "save"): lambda: (model.save_weights(path, max_shard_size=0.25), os.sync()),
            ("ours", "load"): lambda: sk.load_weights(model, path, progress=None),
            ("keras", "load"): lambda: model.load_weights(path)}[ours, what]
    peak = peak_since_now()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    report(seconds, peak_anonymous_bytes=peak(), sum=float(sum(float(v.value[-1].sum()) for v in model.variables)))


# ---- onto eight devices, which the CPU plays

def eight_devices():
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    return jax.sharding.Mesh(jax.devices(), ("x",))


def layout_of(mesh, how):
    """Of a shape: by its rows or its columns."""
    from jax.sharding import NamedSharding, PartitionSpec as P
    return lambda shape: NamedSharding(mesh, P("x") if how == "rows" or len(shape) < 2 else P(None, "x"))


def sum_of(arrays):
    """Of all bytes of all arrays, each shard where it lies."""
    import jax
    import numpy as np
    parts = [shard.data for a in arrays for shard in a.addressable_shards if shard.replica_id == 0] if isinstance(arrays[0], jax.Array) else arrays
    return sum(int(np.asarray(part).reshape(-1).view("u1").sum(dtype=np.int64)) for part in parts)


def mesh_load(who, how, source, saved):
    """who: "plain" (into arrays of the host), "ours" (into shards), "orbax" (the same from what it saved)."""
    mesh = eight_devices()
    import jax
    import jax.numpy as jnp
    import shardwright
    import shardwright.jax

    place = layout_of(mesh, how)
    with shardwright.open(source) as checkpoint:
        shapes = {t.name: jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=place(t.shape)) for t in checkpoint.values()}
    jax.block_until_ready([jax.device_put(jnp.zeros((64, 64)), s) for s in {t.sharding for t in shapes.values()}])  # devices are up
    if who == "orbax":
        import orbax.checkpoint
        checkpointer = orbax.checkpoint.StandardCheckpointer()
    peak = peak_since_now()
    start = time.perf_counter()
    if who == "plain":
        loaded = shardwright.open(source).load()
    elif who == "ours":
        loaded = jax.block_until_ready(shardwright.jax.load(source, lambda t: place(t.shape)))
    else:
        loaded = jax.block_until_ready(checkpointer.restore(os.path.abspath(saved), shapes))
    seconds = time.perf_counter() - start
    report(seconds, peak_anonymous_bytes=peak(), sum=sum_of(list(loaded.values())))


def orbax_save(source, target):
    """The same values as Orbax has them, whole on one device."""
    import jax
    import orbax.checkpoint
    import shardwright

    arrays = {name: jax.device_put(value) for name, value in shardwright.open(source).load().items()}
    checkpointer = orbax.checkpoint.StandardCheckpointer()
    checkpointer.save(os.path.abspath(target), arrays)
    checkpointer.wait_until_finished()
    report(0)


# ---- Orbax's checkpoints: to and from arrays of JAX on one device

COMPRESSIONS = {"raw": {"use_compression": False}, "zstd": {}}


def orbax_checkpointer(how):
    import orbax.checkpoint
    return orbax.checkpoint.Checkpointer(orbax.checkpoint.PyTreeCheckpointHandler(**COMPRESSIONS[how]))


def orbax_state_save(who, how, source, target):
    """who: "ours", "orbax". how: "raw", "zstd", both at Orbax's level 1. Ends with everything on the disk."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import shardwright
    import shardwright.jax

    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    arrays = jax.block_until_ready(shardwright.jax.load(source, device))
    checkpointer = orbax_checkpointer(how)
    peak = peak_since_now()
    start = time.perf_counter()
    if who == "ours":
        shardwright.jax.save(target, arrays, format="orbax", options={"compression": "none" if how == "raw" else "zstd"})
    else:
        checkpointer.save(os.path.abspath(target), arrays)
        os.sync()
    report(time.perf_counter() - start, peak_anonymous_bytes=peak())


def orbax_state_load(who, how, path):
    """From what Orbax saved, to arrays on one device, which both are told."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import shardwright
    import shardwright.jax

    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with shardwright.open(path) as checkpoint:
        target = {t.name: jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=device) for t in checkpoint.values()}
    import orbax.checkpoint
    checkpointer = orbax.checkpoint.StandardCheckpointer()
    jax.block_until_ready(jax.device_put(0.0, device))
    peak = peak_since_now()
    start = time.perf_counter()
    if who == "ours":
        loaded = jax.block_until_ready(shardwright.jax.load(path, device))
    else:
        loaded = jax.block_until_ready(checkpointer.restore(os.path.abspath(path), target))
    seconds = time.perf_counter() - start
    report(seconds, peak_anonymous_bytes=peak(), sum=sum_of(list(loaded.values())))


def keras_mesh_load(who, how, path):
    """The model of on_keras_model() under ModelParallel."""
    os.environ["KERAS_BACKEND"] = "jax"
    eight_devices()
    import keras
    import shardwright.keras as sk

    mesh = keras.distribution.DeviceMesh((1, 8), ("batch", "x"))
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*(kernel|embeddings)"] = ("x", None) if how == "rows" else (None, "x")
    layout[".*bias"] = ("x",)
    with keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope():
        model = keras_model(filled=False)
        peak = peak_since_now()
        start = time.perf_counter()
        if who == "ours":
            sk.load_weights(model, path, progress=None)
        else:
            model.load_weights(path)
        import jax
        jax.block_until_ready([v.value for v in model.variables])
        seconds = time.perf_counter() - start
        report(seconds, peak_anonymous_bytes=peak(), sum=sum_of([v.value for v in model.variables]))


# ---- saving a model that is offloaded to disk

def repository(source, target):
    """The checkpoint of make() as transformers wants it: links to its files, and a configuration."""
    from transformers import LlamaConfig
    os.makedirs(target)
    for name in os.listdir(source):
        os.symlink(os.path.abspath(os.path.join(source, name)), os.path.join(target, name))
    LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                dtype="bfloat16", architectures=["LlamaForCausalLM"]).save_pretrained(target)
    report(0)


def offloaded_save(who, repository, target, size, memory="64MiB"):
    """All weights on disk, as pointers into the checkpoint. Memory over time: resident bytes beyond what there was, every 10 ms."""
    import threading

    import transformers
    import shardwright.torch
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(repository, dtype="auto", device_map={"": "disk"})

    def resident():
        with open("/proc/self/statm") as status:
            return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    samples, done = [], threading.Event()
    begun = resident()
    peak = peak_since_now()
    start = time.perf_counter()

    def sample():
        while not done.wait(0.01):
            samples.append((round(time.perf_counter() - start, 3), resident() - begun))
    watching = threading.Thread(target=sample)
    watching.start()
    if who == "ours":
        shardwright.torch.save_pretrained(model, target, max_shard_size=size, memory=memory)
    else:
        model.save_pretrained(target, max_shard_size=size)
        os.sync()
    seconds = time.perf_counter() - start
    done.set()
    watching.join()
    report(seconds, peak_anonymous_bytes=peak(), memory=[*samples[:-1:5], *samples[-1:]])


if __name__ == "__main__":
    jobs = (hub_reshard, torch_save, torch_to_safetensors, safetensors_load, make, mesh_load, orbax_save, orbax_state_save, orbax_state_load,
            keras_mesh_load, repository, offloaded_save)
    {"keras": on_keras_model, **{job.__name__: job for job in jobs}}[sys.argv[1]](*sys.argv[2:])
