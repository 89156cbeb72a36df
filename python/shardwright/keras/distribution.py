"""Values of Keras laid out over a mesh. Keras lays out with its JAX backend."""
from __future__ import annotations

from collections import Counter
from typing import Any

import keras

from ..errors import InvalidArgumentError, UnsupportedError
from ..memory import DEFAULT_MEMORY
from ..ranks import Ranks


def relayout(array: Any, layout: Any, *, donate: bool = False, memory: int | str = DEFAULT_MEMORY, ranks: Ranks | None = None) -> Any:
    """The same values under another layout, by the fewest bytes and without gathering: see shardwright.jax.relayout().

    array: a value of the JAX backend; of a keras.Variable its value. layout: keras.distribution.TensorLayout, or a sharding of JAX.
    donate, memory, ranks: as there. Raises UnsupportedError on another backend; InvalidArgumentError for a TensorLayout without a mesh, a name that
    stands in layout or mesh twice, which Keras takes, and what shardwright.jax.relayout() refuses.
    """
    sharding = _sharding_of(layout)
    from ..jax.distribution import relayout as by_jax
    return by_jax(array.value if isinstance(array, keras.Variable) else array, sharding, donate=donate, memory=memory, ranks=ranks)


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """A value laid out: placed when it is there, a sharding constraint within a traced function; symbolic tensors pass through, and a value
    that is laid out so already is returned as it is. Dimensions that do not divide are an error, traced or not. Errors are those of relayout()."""
    if isinstance(tensor, keras.KerasTensor):
        return tensor
    sharding = _sharding_of(layout)
    from ..jax.distribution import distribute_tensor as by_jax
    return by_jax(tensor.value if isinstance(tensor, keras.Variable) else tensor, sharding)


def distribute_variable(value: Any, layout: Any) -> Any:
    """The value that a variable of this layout begins with: distribute_tensor() of it. A keras.Variable made under a distribution asks that
    for its layout itself."""
    return distribute_tensor(value, layout)


def _sharding_of(layout: Any) -> Any:
    backend = keras.backend.backend()
    if backend != "jax":
        hint = "shardwright.torch.distribute_tensor() takes placements" if backend == "torch" else None
        raise UnsupportedError(f"Keras with {backend} has no layouts", expected="the JAX backend", hint=hint)
    if not isinstance(layout, keras.distribution.TensorLayout):
        return layout
    if layout.device_mesh is None:
        raise InvalidArgumentError("the layout has no device mesh", found=str(layout.axes), hint="TensorLayout(axes, device_mesh)")
    _check_names(layout)
    return layout.backend_layout


def _check_names(layout: Any) -> None:
    """What Keras does not look at: the mesh of JAX that comes of it is another one."""
    mesh = layout.device_mesh
    for what, names in (("mesh has axis", mesh.axis_names), ("mesh has device", mesh.devices.flat), ("layout has axis", filter(None, layout.axes))):
        counts = Counter(map(str, names))
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise InvalidArgumentError(f"the {what} '{twice[0]}' twice", found=str(layout))
