"""Who makes arrays, and how large: for tests that nothing is ever whole."""
import contextlib

import numpy as np


@contextlib.contextmanager
def arrays_of_more_than(nbytes: int):
    """Yields a list of what was made or handed over meanwhile that has more bytes in one piece: by NumPy's and JAX's constructors, on a
    device of JAX, or as memory of the engine."""
    import jax
    import jax.numpy as jnp
    from jax._src.interpreters import pxla

    from shardwright import _core

    found, undo = [], []

    def size(value) -> int:
        if isinstance(value, jax.Array):
            return max((shard.data.nbytes for shard in value.addressable_shards), default=0)
        return getattr(value, "nbytes", 0)

    def note(what, value_bytes):
        if value_bytes > nbytes:
            found.append(f"{what}: {value_bytes} bytes")

    def wrap(module, name, sizes):
        original = getattr(module, name)

        def spy(*args, **options):
            result = original(*args, **options)
            for value_bytes in sizes(args, result):
                note(f"{module.__name__}.{name}", value_bytes)
            return result
        setattr(module, name, spy)
        undo.append((module, name, original))

    for name in ("empty", "zeros", "array", "asarray", "ascontiguousarray", "frombuffer", "fromfile", "copy"):
        wrap(np, name, lambda args, result: [size(result)])
    for name in ("asarray", "array", "zeros"):
        wrap(jnp, name, lambda args, result: [size(result)])
    wrap(jax, "device_put", lambda args, result: [size(args[0])])
    wrap(pxla, "batched_device_put", lambda args, result: map(size, args[2]))
    wrap(_core, "arena", lambda args, result: [args[0]])
    arena = _core.Arena

    class Arena:
        def __init__(self):
            self.real = arena()

        def take(self, nbytes):
            note("Arena.take", nbytes)
            return self.real.take(nbytes)
    undo.append((_core, "Arena", arena))
    _core.Arena = Arena
    try:
        yield found
    finally:
        for module, name, original in reversed(undo):
            setattr(module, name, original)


def gathered(values) -> list[int]:
    """Which of these arrays of JAX keep a whole copy of themselves on the host (as np.asarray(array) makes it)."""
    return [i for i, value in enumerate(values) if not value.is_fully_replicated and getattr(value, "_npy_value", None) is not None]
