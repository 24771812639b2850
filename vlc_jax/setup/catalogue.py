"""Names for the command line: configs by short name, losses, heads, benchmarks, variants."""

import ast
import difflib
import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlc_jax import errors, losses, models
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.stores import open_clip_names
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.models import variants


def config_folder() -> Path:
    """The folder of the configs, in a checkout or in the installed package."""
    # resolved, since in a checkout it is a link to the folder configs/
    return Path(importlib.util.find_spec("vlc_jax.configs").submodule_search_locations[0]).resolve()


def config_names() -> list[str]:
    """Short names of all configs, such as "scenes/clip"."""
    root = config_folder()
    paths = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    return sorted(str(p) for p in paths if p.name != "__init__" and p.parts[0] != "common")


def find_config(text: str) -> str:
    """The --config value `text`, NAME or NAME:ARGUMENTS, with NAME replaced by the file's path.

    NAME is an existing file, else "scenes/clip" or "configs/scenes/clip.py" of the installed
    package. Raises UsageError, with the nearest name, if there is no such config.
    """
    name, colon, argument = text.partition(":")
    short = name.removeprefix("configs/").removesuffix(".py")
    for path in (Path(name), Path(f"{name}.py"), config_folder() / f"{short}.py"):
        if path.is_file():
            return f"{path}{colon}{argument}"
    absent = f"there is no config file {name}; " if name.endswith(".py") else ""
    raise errors.UsageError(absent + _unknown(short, config_names()))


def _unknown(name: str, names: list[str]) -> str:
    """Names the nearest config, in whichever folder: "hp_hn" for "scenes/hp_hn_swap"."""
    stem = name.rpartition("/")[2]

    def likeness(other: str) -> float:
        ratios = [difflib.SequenceMatcher(None, text, other).ratio() for text in (name, stem)]
        return max(*ratios, 0.9 * stem.startswith(f"{other}_"))

    nearest = max(names, key=likeness)
    return f"unknown config {name!r}; did you mean {nearest!r}? known: {', '.join(names)}"


def listing() -> str:
    """Text of --list: all configs, losses, heads, variants and benchmarks."""
    lines = ["Configs (--config NAME:argument=value,...; --config FILE works, too):", ""]
    for name in config_names():
        text = ast.get_docstring(ast.parse((config_folder() / f"{name}.py").read_text())) or ""
        lines.append(f"  {name}: {_sentence(text)}")
        arguments = re.search(r"^Arguments?: (.*?)(\n\n|\Z)", text, re.S | re.M)
        if arguments:
            lines.append(f"      arguments: {' '.join(arguments[1].split())}")
    for kind, table in (("source", SOURCES), ("tokenizer", TOKENIZERS)):
        group = "input" if kind == "source" else "text"
        lines += ["", f"Names of config.{group}.{kind}, with config.{group}.{kind}_options:"]
        lines += [f"  {name}: {', '.join(_options(make))}" for name, make in table.items()]
    lines += ["", "Losses (config.losses), with the hard texts that they need:"]
    for name, loss in losses.LOSSES.items():
        lines.append(f"  {name}" + "".join(f", {text}s" for text in loss.needs))
    lines += ["", "Heads (config.model.name):"]
    lines += [f"  {name}: {_sentence(inspect.getdoc(h))}" for name, h in models.HEADS.items()]
    lines += ["", f"Variants (config.model.variant): {', '.join(variants.VARIANTS)}"]
    models_of_open_clip = dict.fromkeys(model for model, _ in open_clip_names.ROWS)
    lines += ["", f"Published weights (open_clip://NAME/TAG): {', '.join(models_of_open_clip)}"]
    lines += ["", f"Benchmarks (config.evals): {', '.join(benchmarks.READERS)}"]
    for plugin in errors.plugins():
        rows = [f"{group}: {', '.join(plugin.rows(group))}" for group in errors.GROUPS]
        listed = "; ".join(row for row in rows if not row.endswith(": "))
        lines += ["", f"Plug-in {plugin.package} ({plugin.module}): {plugin.error or listed}"]
    return "\n".join(lines)


def _options(make: Callable[..., Any]) -> list[str]:
    """Options of a source or tokenizer: its parameters, without those that other fields set."""
    field_names = ("split", "context_length")
    return [name for name in inspect.signature(make).parameters if name not in field_names]


def _sentence(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    # no split before a digit, as in "et al. 2024"
    return re.split(r"(?<=[.:]) (?=[^\d])", paragraph)[0].rstrip(":")
