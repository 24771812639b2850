"""Arrays under other names <-> our parameter tree, by one table of rules, strict both ways.

A rule names arrays of the other format and paths of our tree that hold the same numbers; "{i}" in
both stands for the number of a layer. A `Codec` turns the arrays of one side into those of the
other, exactly and back again, so that one table imports and exports.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError

SHOWN = 5  # names in an error message; the rest are counted


class Codec(NamedTuple):
    """`load`: arrays of theirs, in the order of the rule, -> arrays of ours; `save` undoes it."""

    load: Callable[..., tuple[np.ndarray, ...]]
    save: Callable[..., tuple[np.ndarray, ...]]


def _one(
    load: Callable[[np.ndarray], np.ndarray], save: Callable[[np.ndarray], np.ndarray]
) -> Codec:
    return Codec(lambda x: (load(x),), lambda x: (save(x),))


def _columns(x: np.ndarray) -> list[np.ndarray]:
    """Key and value of our joint matrix or bias."""
    return np.split(x, 2, axis=-1)


SAME = _one(lambda x: x, lambda x: x)
# A torch Linear is (outputs, inputs), our kernels are (inputs, outputs).
TRANSPOSED = _one(lambda x: x.T, lambda x: x.T)
SCALAR = _one(lambda x: x.reshape(()), lambda x: x.reshape(()))
SCALAR_OF_ONE = _one(lambda x: x.reshape(()), lambda x: x.reshape(1))
# A parameter with a leading axis of size 1, such as a position embedding (1, length, width).
LEADING_ONE = _one(lambda x: x[0], lambda x: x[None])
LEADING_ONES = _one(lambda x: x[0, 0], lambda x: x[None, None])
# torch.nn.MultiheadAttention: query, key and value below each other.
PACKED_WEIGHT = Codec(
    lambda w: (w[: len(w) // 3].T, w[len(w) // 3 :].T),
    lambda query, key_value: (np.concatenate([query.T, key_value.T]),),
)
PACKED_BIAS = Codec(
    lambda b: (b[: len(b) // 3], b[len(b) // 3 :]),
    lambda query, key_value: (np.concatenate([query, key_value]),),
)
# Hugging Face: one Linear each.
SEPARATE_WEIGHT = Codec(
    lambda q, k, v: (q.T, np.concatenate([k.T, v.T], axis=-1)),
    lambda query, key_value: (query.T, *(part.T for part in _columns(key_value))),
)
SEPARATE_BIAS = Codec(
    lambda q, k, v: (q, np.concatenate([k, v])),
    lambda query, key_value: (query, *_columns(key_value)),
)


def convolution(patch: int) -> Codec:
    """A patch embedding (outputs, 3, patch, patch) <-> our matrix over (row, column, channel)."""
    return _one(
        lambda x: x.transpose(2, 3, 1, 0).reshape(-1, x.shape[0]),
        lambda x: x.reshape(patch, patch, 3, -1).transpose(3, 2, 0, 1),
    )


class Rule(NamedTuple):
    """Names of the other format and paths of our tree that hold the same numbers."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    codec: Codec = SAME

    def is_of(self, part: str) -> bool:
        """Whether it is about that part of our tree."""
        return all(path.startswith(f"{part}/") for path in self.ours)


def rule(theirs: str | Sequence[str], ours: str | Sequence[str], codec: Codec = SAME) -> Rule:
    """A Rule; a single name may stand for a tuple of one."""
    as_tuple = [(x,) if isinstance(x, str) else tuple(x) for x in (theirs, ours)]
    return Rule(*as_tuple, codec)


def load(
    rules: Sequence[Rule],
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    ignored: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Our flat parameters, path -> float32 array, of exactly the paths of `shapes`.

    The arrays have the shapes of the file, which `check_values` compares with those of the model.
    ignored: regular expressions of whole names that may be there and are not weights.
    Raises WeightsError naming what is left over or missing.
    """
    used = filled(rules, shapes)
    wanted = {name for each in used for name in each.theirs}
    left = [
        name
        for name in arrays
        if name not in wanted and not any(re.fullmatch(regex, name) for regex in ignored)
    ]
    missing = sorted(wanted - arrays.keys())
    without = sorted(shapes.keys() - {path for each in used for path in each.ours})
    problems = [
        _listing("not in the file", missing),
        _listing("in the file, but no parameter of this model", left),
        _listing("parameters that this format has no name for", without),
    ]
    if any(problems):
        raise WeightsError("the weights do not fit the model: " + "; ".join(filter(None, problems)))
    params = {}
    for each in used:
        sources = [arrays[name] for name in each.theirs]
        try:
            results = each.codec.load(*sources)
        except (ValueError, IndexError) as error:
            raise WeightsError(f"{each.theirs[0]} has shape {sources[0].shape}: {error}") from error
        params |= dict(zip(each.ours, results, strict=True))
    return {path: np.array(x, dtype=np.float32, order="C") for path, x in params.items()}


def save(rules: Sequence[Rule], params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same numbers under the names of the other format.

    Raises WeightsError for parameters that the format has no name for.
    """
    used = filled(rules, params)
    covered = {path for each in used for path in each.ours}
    without = _listing(
        "parameters that this format has no name for", [p for p in params if p not in covered]
    )
    if without:
        raise WeightsError(without)
    arrays = {}
    for each in used:
        results = each.codec.save(*(np.asarray(params[path]) for path in each.ours))
        arrays |= dict(zip(each.theirs, results, strict=True))
    return {name: np.array(x, order="C") for name, x in arrays.items()}


def names(rules: Iterable[Rule]) -> list[str]:
    """Regular expressions of all names of the other format in `rules`."""
    return [re.escape(name).replace(r"\{i\}", r"\d+") for each in rules for name in each.theirs]


def check_names(params: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Raises WeightsError naming the parameters that one side has and the other has not."""
    problems = [
        _listing("missing", sorted(shapes.keys() - params.keys())),
        _listing("not parameters of this model", sorted(params.keys() - shapes.keys())),
    ]
    if any(problems):
        raise WeightsError("the weights do not fit the model: " + "; ".join(filter(None, problems)))


def check_values(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises WeightsError naming arrays of another shape, or with NaN or infinity in them."""
    wrong = [
        f"{path} {params[path].shape} instead of {tuple(shape)}"
        for path, shape in shapes.items()
        if tuple(params[path].shape) != tuple(shape)
    ]
    broken = [path for path, x in params.items() if not np.isfinite(x.astype(np.float32)).all()]
    problems = [_listing("other shapes than the model's", wrong), _listing("not finite", broken)]
    if any(problems):
        raise WeightsError("the weights do not fit the model: " + "; ".join(filter(None, problems)))


def filled(rules: Sequence[Rule], paths: Iterable[str]) -> list[Rule]:
    """The rules that `paths` of ours have a use for, each once per layer number, filled in."""
    filled = []
    for each in rules:
        regex = re.escape(each.ours[0]).replace(r"\{i\}", r"(?P<i>\d+)")
        for match in filter(None, (re.fullmatch(regex, path) for path in paths)):
            layer = match.groupdict().get("i", "")
            theirs, ours = (
                tuple(name.replace("{i}", layer) for name in names)
                for names in (each.theirs, each.ours)
            )
            filled.append(Rule(theirs, ours, each.codec))
    return filled


def _listing(title: str, names: Sequence[str]) -> str:
    """ "3 missing: a, b, c", shortened; "" if there are none."""
    if not names:
        return ""
    more = f", ... ({len(names) - SHOWN} more)" if len(names) > SHOWN else ""
    return f"{len(names)} {title}: {', '.join(names[:SHOWN])}{more}"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of dicts as one dict of "a/b/c" paths."""
    flat = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, path + "/") if isinstance(value, Mapping) else {path: value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What `flatten` flattened."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree
