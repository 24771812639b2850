"""Class names and templates of zero-shot prompts, from a config or from files."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file

Texts = str | Path | Sequence[str]


def class_names(
    names_or_file: Texts, known: Sequence[str], ids: Texts | None = None
) -> tuple[str, ...]:
    """A name for each of the classes `known`, in their order.

    names_or_file: the names, or a file of them; a JSON object maps known names to new names.
    ids: known names of all the names, in their order, for a source that has a part of the classes
      (ImageNet-A, ImageNet-R): a list, or a file of lines that begin with them.
    Raises ValueError unless names are one per class, and for names that the classes have, too, but
    in another order. Equal names are allowed: ImageNet's published ones have two pairs.
    """
    names = _read(names_or_file, "class_names")
    if ids is not None:
        lines = _texts(_read(ids, "class_ids"), "class_ids")
        keys = [line.split()[0] for line in lines if line.strip()]
        names = _texts(names, "class_names")
        if len(keys) != len(names) or len({*keys}) != len(keys):
            raise ValueError(
                f"class_ids are one per name of class_names, all different; got {len(keys)}, "
                f"{len({*keys})} of them different, for {len(names)} names"
            )
        names = dict(zip(keys, names, strict=True))
    if isinstance(names, dict):
        missing = [name for name in known if name not in names]
        if missing:
            where = "the names" if ids is not None else names_or_file
            raise ValueError(f"class_names: {where} has no {missing[0]!r}, a class of the source")
        names = [names[name] for name in known]
    names = _texts(names, "class_names")
    if len(names) != len(known):
        raise ValueError(
            f"class_names are one per class, in the order of the labels: the source has "
            f"{len(known)} classes ({', '.join(known[:2])}, ...), got {len(names)} names; for a "
            "part of the classes set class_ids"
        )
    _check_order(names, known)
    return names


def _check_order(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError if more classes have their own name at another place than at their own."""
    plain = [[re.sub(r"[\W_]+", "", each.lower()) for each in texts] for texts in (names, known)]
    times = Counter(plain[0])
    places = {name: position for position, name in enumerate(plain[0]) if times[name] == 1}
    shared = [(label, places[name]) for label, name in enumerate(plain[1]) if name in places]
    displaced = [pair for pair in shared if pair[0] != pair[1]]
    if 2 * len(displaced) > len(shared):
        label, position = displaced[0]
        raise ValueError(
            f"class_names are in the order of the labels: class {label} of the source is "
            f"{known[label]!r}, which is name {position}; class {label} is called "
            f"{names[label]!r}. Bring them into the order of the source, or give an object "
            "{class: name}"
        )


def templates(texts_or_file: Texts) -> tuple[str, ...]:
    """Templates from a list, a file or a single text. Raises ValueError unless each has {} once."""
    is_template = isinstance(texts_or_file, str) and "{}" in texts_or_file
    texts = [texts_or_file] if is_template else _read(texts_or_file, "templates")
    # {c} is CLIP_benchmark's placeholder
    texts = tuple(text.replace("{c}", "{}") for text in _texts(texts, "templates"))
    for template in texts:
        if template.count("{}") != 1 or {"{", "}"} & {*template.replace("{}", "")}:
            raise ValueError(
                "templates have {} once, in place of the class, and no other braces; got "
                f"{template!r}"
            )
    if not texts:
        raise ValueError("templates: there are none")
    return texts


def _read(texts_or_file: Texts, option: str) -> Any:
    if not isinstance(texts_or_file, str | Path):
        return texts_or_file
    path, colon, name = str(texts_or_file).rpartition(".json:")
    if colon:
        entries = _read(f"{path}.json", option)
        if not isinstance(entries, dict) or name not in entries:
            known = ", ".join(entries) if isinstance(entries, dict) else "no object"
            raise ValueError(f"{option}: {path}.json has no {name!r}; it has {known}")
        return entries[name]
    try:
        if Path(texts_or_file).suffix == ".json":
            return json.loads(text_file.read(Path(texts_or_file)))
        lines = text_file.lines(Path(texts_or_file))
    except (OSError, ValueError, RecursionError, DataError) as error:
        raise ValueError(f"{option}: cannot read {texts_or_file}: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _texts(value: Any, option: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{option} are texts; got {value!r:.80}")
    return tuple(value)
