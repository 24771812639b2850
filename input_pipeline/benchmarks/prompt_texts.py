"""Class names and templates of zero-shot prompts, from a config or from files."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Texts = str | Path | Sequence[str]


def class_names(given: Texts, known: Sequence[str]) -> tuple[str, ...]:
    """A name for each of the classes `known`, in their order.

    given: the names, or a file of them; an object in a .json file maps the known names to others.
    Raises ValueError unless they are one per class, and different: equal names would tie.
    """
    names = _read(given, "class_names")
    if isinstance(names, dict):
        missing = [name for name in known if name not in names]
        if missing:
            raise ValueError(f"class_names: {given} has no {missing[0]!r}, a class of the source")
        names = [names[name] for name in known]
    names = _texts(names, "class_names")
    if len(names) != len(known):
        raise ValueError(
            f"class_names are one per class, in the order of the labels: the source has "
            f"{len(known)} classes ({', '.join(known[:2])}, ...), got {len(names)} names"
        )
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ValueError(
            f"class_names are different, or their prompts tie; {name!r} is there twice"
        )
    return names


def templates(given: Texts) -> tuple[str, ...]:
    """The templates: given, or in a file. Raises ValueError unless each has {} once."""
    is_one = isinstance(given, str) and "{}" in given
    found = _texts([given] if is_one else _read(given, "templates"), "templates")
    found = tuple(template.replace("{c}", "{}") for template in found)  # CLIP_benchmark's
    for template in found:
        if template.count("{}") != 1:
            raise ValueError(f"templates have {{}} once, in place of the class; got {template!r}")
    if not found:
        raise ValueError("templates: there are none")
    return found


def _read(given: Texts, option: str) -> Any:
    if not isinstance(given, str | Path):
        return given
    path, colon, name = str(given).rpartition(".json:")
    if colon:
        entries = _read(f"{path}.json", option)
        if not isinstance(entries, dict) or name not in entries:
            known = ", ".join(entries) if isinstance(entries, dict) else "no object"
            raise ValueError(f"{option}: {path}.json has no {name!r}; it has {known}")
        return entries[name]
    try:
        text = Path(given).read_text("utf-8")
        if Path(given).suffix == ".json":
            return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{option}: cannot read {given}: {error}") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _texts(found: Any, option: str) -> tuple[str, ...]:
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{option} are texts; got {found!r:.80}")
    return tuple(found)
