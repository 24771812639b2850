"""Renaming rules between another format's arrays and our parameter tree, strict in both directions.

A rule maps array names of the other format to paths of our tree; "{i}" in both is the index of a
layer. Its `Codec` converts the arrays in both directions without loss, so that one table serves
import and export.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError

Put = Callable[[str, np.ndarray], Any]
SHOWN = 5  # names in an error message; the rest are counted


class Codec(NamedTuple):
    """Conversion of arrays: `load` from theirs to ours, in the order of the rule; `save` back."""

    load: Callable[..., tuple[np.ndarray, ...]]
    save: Callable[..., tuple[np.ndarray, ...]]


def _one(
    load: Callable[[np.ndarray], np.ndarray], save: Callable[[np.ndarray], np.ndarray]
) -> Codec:
    return Codec(lambda x: (load(x),), lambda x: (save(x),))


def _columns(x: np.ndarray) -> list[np.ndarray]:
    """Key and value columns of our joint matrix or bias."""
    return np.split(x, 2, axis=-1)


SAME = _one(lambda x: x, lambda x: x)
# A torch Linear is (outputs, inputs); our kernels, as flax's, are (inputs, outputs).
TRANSPOSED = _one(lambda x: x.T, lambda x: x.T)
SCALAR = _one(lambda x: x.reshape(()), lambda x: x.reshape(()))
SCALAR_OF_ONE = _one(lambda x: x.reshape(()), lambda x: x.reshape(1))
# A parameter with a leading axis of size 1, such as a position embedding (1, length, width).
# squeeze, not [0]: for NaFlex positions (16, 16, width), [0] would silently return a row
LEADING_ONE = _one(lambda x: x.squeeze(0), lambda x: x[None])
LEADING_ONES = _one(lambda x: x.squeeze((0, 1)), lambda x: x[None, None])
# torch.nn.MultiheadAttention and timm's qkv: query, key and value in thirds of the outputs.
# Ours has a separate query: tokens that a pooling query attends to need only keys and values.
PACKED_WEIGHT = Codec(
    lambda w: (w[: len(w) // 3].T, w[len(w) // 3 :].T),
    lambda query, key_value: (np.concatenate([query.T, key_value.T]),),
)
PACKED_BIAS = Codec(
    lambda b: (b[: len(b) // 3], b[len(b) // 3 :]),
    lambda query, key_value: (np.concatenate([query, key_value]),),
)
# Biases of two matrices, see `stacked`.
STACKED_BIAS = Codec(lambda b: tuple(np.split(b, 2)), lambda *parts: (np.concatenate(parts),))
# Hugging Face: one Linear for each of query, key and value.
SEPARATE_WEIGHT = Codec(
    lambda q, k, v: (q.T, np.concatenate([k.T, v.T], axis=-1)),
    lambda query, key_value: (query.T, *(part.T for part in _columns(key_value))),
)
SEPARATE_BIAS = Codec(
    lambda q, k, v: (q, np.concatenate([k, v])),
    lambda query, key_value: (query, *_columns(key_value)),
)


def stacked(count: int) -> Codec:
    """Codec of a torch Linear that concatenates `count` equal matrices along its outputs (rows)."""
    return Codec(
        lambda weight: tuple(part.T for part in np.split(weight, count)),
        lambda *parts: (np.concatenate([part.T for part in parts]),),
    )


def unflattened(kernel: np.ndarray) -> np.ndarray:
    """A patch embedding matrix as (row, column, channel, width), as models/vit flattens a patch."""
    side = math.isqrt(len(kernel) // 3)
    return kernel.reshape(side, side, 3, -1)


# A torch convolution (outputs, 3, rows, columns), of which ours is a patch embedding matrix.
PATCHES = _one(
    lambda x: x.transpose(2, 3, 1, 0).reshape(-1, x.shape[0]),
    lambda x: unflattened(x).transpose(3, 2, 0, 1),
)
# A torch convolution (outputs, inputs, rows, columns); ours is (rows, columns, inputs, outputs).
CONVOLUTION = _one(lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1))
# A torch convolution of 1 x 1, of which ours is a matrix (inputs, outputs).
POINTWISE = _one(lambda x: x.squeeze((2, 3)).T, lambda x: x.T[:, :, None, None])


def query_key_value(attention: str, kind: str) -> tuple[str, str]:
    """Our paths of an attention's query, and of its joint keys and values; kind: kernel or bias."""
    return f"{attention}/query/{kind}", f"{attention}/key_value/{kind}"


class Rule(NamedTuple):
    """Array names of the other format and the paths of our tree with the same values.

    layers: indices of the layers that our arrays stack on axis 0; "{i}" is then in `theirs` alone.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    codec: Codec = SAME
    layers: range | None = None

    def is_of(self, part: str) -> bool:
        """True if all parameters of the rule belong to `part` of our tree, such as "image"."""
        return all(path.startswith(f"{part}/") for path in self.ours)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """Names in the other format, of each layer of a stack."""
        if self.layers is None:
            return [self.theirs]
        return [tuple(name.replace("{i}", str(i)) for name in self.theirs) for i in self.layers]


def rule(
    theirs: str | Sequence[str],
    ours: str | Sequence[str],
    codec: Codec = SAME,
    layers: range | None = None,
) -> Rule:
    """A Rule; a string stands for a tuple of one name."""
    as_tuple = [(x,) if isinstance(x, str) else tuple(x) for x in (theirs, ours)]
    return Rule(*as_tuple, codec, layers)


def load(
    rules: Sequence[Rule],
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    ignored: Sequence[str] = (),
    *,
    put: Put | None = None,
    dtype: Any = np.float32,
    is_exact: bool = False,
) -> dict[str, Any]:
    """Our flat parameters, {path: array}, with exactly the paths of `shapes`, made one by one.

    ignored: regular expressions of whole names in the file that are no parameters.
    put: moves each parameter to its devices: (path, array) -> the value of the result.
    dtype: of all parameters; None: as in the file.   is_exact: arrays must have the shapes of
    `shapes` and be finite; else they have the shapes of the file, for `check_values`.
    Raises WeightsError with the names of leftover or missing arrays, and of those that do not fit.
    """
    used = expand(rules, shapes)
    expected = {name for rule in used for names in rule.names for name in names}
    present = [
        name
        for name in arrays
        if name in expected or not any(re.fullmatch(regex, name) for regex in ignored)
    ]
    nameless = shapes.keys() - {path for rule in used for path in rule.ours}
    check_complete(expected, present, nameless)
    params = {}
    for rule in used:
        made = _parameters(rule, arrays, shapes if is_exact else None, dtype)
        # pop: an array that was moved to a device is freed before the next one
        while made:
            path = next(iter(made))
            params[path] = made.pop(path) if put is None else put(path, made.pop(path))
    return params


def _parameters(
    rule: Rule,
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]] | None,
    dtype: Any,
) -> dict[str, np.ndarray]:
    """The parameters of a rule, layers stacked on axis 0."""
    made: dict[str, np.ndarray] = {}
    stack = () if rule.layers is None else (len(rule.layers),)
    for index, names in enumerate(rule.names):
        parts = convert(rule.codec.load, names[0], [arrays[name] for name in names])
        for path, part in zip(rule.ours, parts, strict=True):
            shape = (*stack, *part.shape)
            if shapes is not None and shape != shapes[path]:
                raise WeightsError(f"{names[0]} gives {path} {shape} instead of {shapes[path]}")
            if shapes is not None and not np.isfinite(part).all():
                raise WeightsError(f"{names[0]} is not finite")
            if path not in made:
                made[path] = np.empty(shape, dtype or part.dtype)
            # a copy: codecs return views, which would keep all arrays of the file in memory. A
            # float64 beyond float32's range becomes infinity, which `check_values` reports.
            with np.errstate(over="ignore"):
                made[path][... if rule.layers is None else index] = part
    return made


def convert(
    load: Callable[..., tuple[np.ndarray, ...]], name: str, sources: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """`load` of the arrays of a rule. Raises WeightsError, with `name`, for a wrong shape."""
    try:
        return load(*sources)
    except (ValueError, IndexError, TypeError) as error:  # TypeError: len() of a scalar
        raise WeightsError(f"{name} has shape {sources[0].shape}: {error}") from error


def save(rules: Sequence[Rule], params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of the other format, {name: array}, from our flat parameters.

    Raises WeightsError for parameters that the format has no name for.
    """
    return dict(saved(rules, params))


def saved(
    rules: Sequence[Rule], params: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and arrays of `save`."""
    used = expand(rules, params)
    named = {path for rule in used for path in rule.ours}
    if nameless := [path for path in params if path not in named]:
        raise WeightsError(listing("parameters that this format has no name for", nameless))
    for rule in used:
        ours = [np.asarray(params[path]) for path in rule.ours]
        for index, names in enumerate(rule.names):
            parts = ours if rule.layers is None else [x[index] for x in ours]
            for name, array in zip(names, rule.codec.save(*parts), strict=True):
                yield name, np.array(array, order="C")


def names(rules: Iterable[Rule]) -> list[str]:
    """Regular expressions of all names of the other format in `rules`."""
    return [re.escape(name).replace(r"\{i\}", r"\d+") for rule in rules for name in rule.theirs]


def check_complete(
    expected: Collection[str], present: Collection[str], nameless: Iterable[str] = ()
) -> None:
    """Raises WeightsError with the names of arrays that a file lacks or has beyond the model's.

    nameless: parameters of ours that the format has no name for.
    """
    _refuse(
        listing("not in the file", sorted(set(expected) - set(present))),
        listing(
            "in the file, but no parameter of this model", sorted(set(present) - set(expected))
        ),
        listing("parameters that this format has no name for", sorted(nameless)),
    )


def check_names(params: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Raises WeightsError with the names of parameters that only one of the two trees has."""
    _refuse(
        listing("missing", sorted(shapes.keys() - params.keys())),
        listing("not parameters of this model", sorted(params.keys() - shapes.keys())),
    )


def check_values(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises WeightsError with the names of arrays of other shapes, or with NaN or infinity."""
    wrong = [
        f"{path} {params[path].shape} instead of {tuple(shape)}"
        for path, shape in shapes.items()
        if tuple(params[path].shape) != tuple(shape)
    ]
    nonfinite = [path for path, x in params.items() if not np.isfinite(x.astype(np.float32)).all()]
    _refuse(listing("other shapes than the model's", wrong), listing("not finite", nonfinite))


def _refuse(*problems: str) -> None:
    """Raises WeightsError with the listings that are not empty, if any."""
    if any(problems):
        raise WeightsError("the weights do not fit the model: " + "; ".join(filter(None, problems)))


def expand(rules: Sequence[Rule], paths: Collection[str], by: str = "ours") -> list[Rule]:
    """The rules for `paths` of our tree; rules with "{i}" in both are repeated for every layer.

    by: "theirs": `paths` are names of the other format.
    """
    expanded = []
    for rule in rules:
        if rule.layers is not None:
            expanded += [rule] if rule.ours[0] in paths else []
            continue
        regex = re.escape(getattr(rule, by)[0]).replace(r"\{i\}", r"(?P<i>\d+)")
        for match in filter(None, (re.fullmatch(regex, path) for path in paths)):
            layer = match.groupdict().get("i", "")
            theirs, ours = (
                tuple(name.replace("{i}", layer) for name in names)
                for names in (rule.theirs, rule.ours)
            )
            expanded.append(Rule(theirs, ours, rule.codec))
    return expanded


def listing(title: str, names: Sequence[str]) -> str:
    """Text such as "3 missing: a, b, c", shortened; "" if there are no names."""
    if not names:
        return ""
    more = f", ... ({len(names) - SHOWN} more)" if len(names) > SHOWN else ""
    return f"{len(names)} {title}: {', '.join(names[:SHOWN])}{more}"


class AtAccess(Mapping[str, np.ndarray]):
    """Arrays by name, read at access.   places: where each is.   read: place -> array."""

    def __init__(self, places: Mapping[str, Any], read: Callable[[Any], np.ndarray]) -> None:
        self._places, self._read = places, read

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read(self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of dicts as one dict with "a/b/c" paths as keys."""
    flat = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, path + "/") if isinstance(value, Mapping) else {path: value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of dicts that `flatten` would turn into `flat`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree
