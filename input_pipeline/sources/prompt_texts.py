"""Class names and templates of zero-shot prompts, from a config or from files."""

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError, trimmed
from vlc_jax.input_pipeline.sources import json_annotations
from vlc_jax.input_pipeline.stores import text_file

Texts = str | Path | Sequence[str] | Mapping[str, str]

_ID = re.compile(r"n\d{8}", re.I)  # of WordNet
# key, separator and name of a line: "n01440764 tench", "0: tench", "1. tench", "n01440764,tench"
_KEYED = re.compile(r"(\S+?)(\s*[:=,\t]\s*|[.)]?\s+)(\S.*)")
# lines of a list or a dict in Python; "{} on grey" is a template
_CODE = re.compile(
    r"""lambda\b.*:.*|[fr]?(["']).*\1,?|\d+\s*:\s*(["']).*\2,?"""
    r"""|(\w+\s*=\s*)?([\[({](?=\s*([fr]?["']|lambda\b|$))|\{(?=\s*\d+\s*:)).*"""
)


def class_names(
    names_or_file: Texts, known: Sequence[str], ids: Texts | None = None
) -> tuple[str, ...]:
    """A name for each of the classes `known`, in their order; () if the source has no names.

    names_or_file: the names, or a file of them. Names with a known name or a number from 0 on in
      front of each ("n01440764 tench", "0: tench"), and those of an object, go by these.
    ids: known names of all the names, in their order, for a source that has a part of the classes
      (ImageNet-A, ImageNet-R): a list, or a file of lines that begin with them.
    Raises ValueError unless names are one per class, for names that the classes have, too, but in
    another order, and for ids and numbers that do not tell the classes. Equal names are allowed:
    ImageNet's published ones have two pairs.
    """
    where = _where("class_names", names_or_file)
    names = read(names_or_file, "class_names")
    if not isinstance(names, dict):
        names = _by_key(_texts(names, where), known, where)
    if ids is not None:
        keys = [line.split()[0] for line in _texts(read(ids, "class_ids"), "class_ids") if line]
        if isinstance(names, dict) or len(keys) != len(names) or len({*keys}) != len(keys):
            raise ValueError(
                f"class_ids are one per name of class_names, all different; got {len(keys)}, "
                f"{len({*keys})} of them different, for {len(names)} names"
                f"{' with ids of their own' * isinstance(names, dict)}"
            )
        names = dict(zip(keys, names, strict=True))
    if isinstance(names, dict):
        names = _object_names(names, known, where)
    names = _texts(names, where)
    if known and len(names) != len(known):
        raise ValueError(
            f"{where} has {len(names)} names for the {len(known)} classes of the source "
            f"({', '.join(known[:2])}, ...): write one per class, in the order of the labels; for "
            "a part of the classes set class_ids"
        )
    _check_order(names, known, where)
    return names


def _by_key(
    names: Sequence[str], known: Sequence[str], where: str
) -> Sequence[str] | dict[str, str]:
    """Names by the id or number in front of each, with spaces for underscores; without, as given.

    Raises ValueError for ids of some names only, for ids or numbers that are there twice, and for
    numbers behind the names.
    """
    rows = [(m.groups() if (m := _KEYED.fullmatch(name)) else (name, "", "")) for name in names]
    # "dog a big one" of the class dog may be a name
    marked = {*known}
    keys = {name for name in known if re.search(r"\d", name)}
    is_id = [
        bool(rest and (_ID.fullmatch(key) or key in (marked if {*":=\t"} & {*by} else keys)))
        for key, by, rest in rows
    ]
    is_number = [bool(rest) and key.isdecimal() for key, _, rest in rows]
    has_key = [any(each) for each in zip(is_id, is_number, strict=True)]
    some_ids = any(is_id) or any(
        _ID.search(name) and not _ID.fullmatch(name) and name not in marked for name in names
    )
    if not names or not all(has_key):
        if names and (some_ids or 2 * sum(is_number) > len(names)):
            line = names[has_key.index(False)]
            raise ValueError(
                f"{where}: {line!r:.80} does not begin with an id or number and a name; write the "
                "id in front of every name or of none"
            )
        ends = [re.fullmatch(r"(.+?)(?:\s*[,;:=]\s*|\s+)(\d{1,9})", name) for name in names]
        # by the text in front: "digit 0", "digit 1" are names
        numbers = sorted(map(int, dict(end.groups() for end in ends if end).values()))
        if names and numbers in ([*range(len(names))], [*range(1, len(names) + 1)]):
            raise ValueError(f"{where}: {names[0]!r:.80} ends in a number; write it in front")
        if tabs := [name for name in names if "\t" in name]:
            raise ValueError(f"{where}: {tabs[0]!r:.80} has a tab; a line is one name")
        return names
    keys, _, rests = zip(*rows, strict=True)
    if twice := [key for key, times in Counter(keys).items() if times > 1]:
        raise ValueError(
            f"{where} has {twice[0]!r} in front of two names; if it is "
            "a part of the names, give an object {class: name}"
        )
    if all(re.match(r"\d+\s+\S", rest) for rest in rests) and any(is_id):
        rests = [rest.split(None, 1)[1] for rest in rests]  # map_clsloc.txt: n02119789 1 kit_fox
    return {key: rest.replace("_", " ") for key, rest in zip(keys, rests, strict=True)}


def _object_names(names: Mapping[Any, Any], known: Sequence[str], where: str) -> list[Any]:
    """Values of an object, in the order of `known`, or of their numbers from 0 on.

    A value may be a pair of id and name, as in Keras' imagenet_class_index.json.
    """
    names = {str(key): value for key, value in names.items()}
    if all(isinstance(value, list) and len(value) == 2 for value in names.values()):
        ids = {value[0]: str(value[1]).replace("_", " ") for value in names.values()}
        is_by_id = {*known} <= ids.keys()
        names = ids if is_by_id else dict(zip(names, ids.values(), strict=True))
    missing = [name for name in known if name not in names]
    if known and not missing:
        reason = "names are of classes that the source lacks"
        json_annotations.mention(where, len(names) - len({*known}), len(names), reason)
        return [names[name] for name in known]
    if not all(key.isdecimal() for key in names):
        raise ValueError(
            f"{where} has no {missing[0]!r}, a class of the source"
            if known
            else f"{where} has ids, and the source has none: write names alone, in the order of "
            "the labels"
        )
    by_number = {int(key): value for key, value in names.items()}
    if sorted(by_number) != [*range(len(names))]:
        raise ValueError(
            f"{where}: numbers of {len(names)} classes are 0 to {len(names) - 1}, each once; got "
            f"{min(by_number)} to {max(by_number)}. If they are parts of the names, give an object "
            "{class: name}"
        )
    return [by_number[number] for number in range(len(names))]


def _check_order(names: Sequence[str], known: Sequence[str], where: str) -> None:
    """Raises ValueError if more classes have their own name at another place than at their own."""
    plain = [[re.sub(r"[\W_]+", "", each.lower()) for each in texts] for texts in (names, known)]
    times = Counter(plain[0])
    places = {name: position for position, name in enumerate(plain[0]) if times[name] == 1}
    shared = [(label, places[name]) for label, name in enumerate(plain[1]) if name in places]
    displaced = [pair for pair in shared if pair[0] != pair[1]]
    if 2 * len(displaced) > len(shared):
        label, position = displaced[0]
        raise ValueError(
            f"{where} are in the order of the labels: class {label} of the source is "
            f"{known[label]!r}, which is name {position}; class {label} is called "
            f"{names[label]!r}. Bring them into the order of the source, or give an object "
            "{class: name}"
        )


def templates(texts_or_file: Texts) -> tuple[str, ...]:
    """Templates from a list, a file or a single text. Raises ValueError unless each has {} once."""
    is_template = isinstance(texts_or_file, str) and "{}" in texts_or_file
    texts = [texts_or_file] if is_template else read(texts_or_file, "templates")
    where = "templates" if is_template else _where("templates", texts_or_file)
    # {c} is CLIP_benchmark's placeholder
    texts = tuple(text.replace("{c}", "{}") for text in _texts(texts, where))
    for template in texts:
        if not re.fullmatch(r"(?!\d+[.):]\s)[^{}]*\{\}[^{}]*", template):
            raise ValueError(
                f"{where} have {{}} once, in place of the class, no other braces and no number in "
                f"front; got {template!r:.80}"
            )
    if not texts:
        raise ValueError(f"{where}: there are none")
    return texts


def read(texts_or_file: Texts, option: str) -> Any:
    """The value of a JSON file, or the lines of a text file, which may be those of a list or a dict
    in Python; other values as they are. Raises ValueError, naming file and line."""
    if not isinstance(texts_or_file, str | Path):
        return texts_or_file
    path, colon, name = str(texts_or_file).rpartition(".json:")
    if colon:
        entries = read(f"{path}.json", option)
        if not isinstance(entries, dict) or name not in entries:
            known = ", ".join(entries) if isinstance(entries, dict) else "no object"
            raise ValueError(f"{option}: {path}.json has no {name!r}; it has {known}")
        return entries[name]
    file = Path(texts_or_file)
    try:
        text = text_file.read(file)
        if file.suffix == ".json":
            return json_annotations.parse(text)
    except (OSError, ValueError, RecursionError, DataError) as error:
        raise ValueError(f"{option}: cannot read {file}: {error}") from error
    lines = trimmed(text.rstrip().split("\n"))
    if any(map(_CODE.fullmatch, lines)):
        return _code_value(text, f"{option}: {file}")
    if "" in lines[:-1] and option == "class_names":
        raise ValueError(f"line {lines.index('') + 1} of {file} is blank, where a class has a name")
    return [line for line in lines if line]


def _code_value(text: str, where: str) -> Any:
    """Texts of a list, a dict or a part of one in Python, lambdas and f-strings as templates."""
    # without commas, Python would join the strings of two lines
    text = re.sub(r"""(["'])[ \t]*$""", r"\1,", text, flags=re.MULTILINE)
    if re.match(r"""\s*(\d+|(["']).*?\2)\s*:""", text):
        text = f"{{{text}\n}}"
    elif re.match(r"\s*(\w+\s*=\s*)?[\[({]", text):
        text = text.lstrip()
    else:
        lines = enumerate(map(str.strip, text.split("\n")), start=1)
        if plain := [x for x in lines if x[1][:1] not in ("", "#") and not _CODE.fullmatch(x[1])]:
            line, other = plain[0]
            raise ValueError(f"{where}, line {line}, is no code, unlike others: {other!r:.80}")
        text = f"[{text}\n]"
    try:
        tree = ast.parse(text)
        if len(tree.body) > 1 or not isinstance(tree.body[0], ast.Assign | ast.Expr):
            raise SyntaxError("more than one value", (None, tree.body[-1].lineno, 0, None))
        return _value(tree.body[0].value)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ValueError(
            f"{where}{f', line {line},' if line else ''} is code that is not understood "
            f"({getattr(error, 'msg', error)}); write one text per line, without quotation marks "
            "and commas"
        ) from error


def _value(node: ast.expr) -> Any:
    """The value of a literal. Raises SyntaxError for other code."""
    match node:
        case ast.Constant(value=str() | int()):
            return node.value
        case ast.List() | ast.Tuple():
            return [*map(_value, node.elts)]
        case ast.Lambda():
            return _value(node.body)
        case ast.JoinedStr():
            return "".join(map(_value, node.values))
        case ast.FormattedValue(value=ast.Name(), conversion=-1, format_spec=None):
            return "{}"
        case ast.Dict() if None not in node.keys:
            values = dict(zip(map(_value, node.keys), map(_value, node.values), strict=True))
            if len(values) == len(node.keys):
                return values
    raise SyntaxError(ast.unparse(node)[:80], (None, node.lineno, 0, None))


def _where(option: str, texts_or_file: Texts) -> str:
    is_file = isinstance(texts_or_file, str | Path)
    return f"{option} ({texts_or_file})" if is_file else option


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{where} are texts; got {value!r:.80}")
    code = re.compile(r"""\s*((lambda|def)\b.*:.*|[-*]\s.*|["'“‘`].*|.*,)""", re.DOTALL)
    texts = trimmed(tuple(value))
    if odd := [text for text in texts if "\0" in text or code.fullmatch(text)]:
        raise ValueError(f"{where}: {odd[0]!r:.80} is quoted or code; write the text alone")
    return texts
