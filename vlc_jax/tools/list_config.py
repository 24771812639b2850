"""Description of a config with the published numbers of its rows: vlc-jax --list NAME.

The numbers are those of vlc_jax/report/published, of the models that configs/common/methods names
for the config.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from vlc_jax import errors
from vlc_jax.configs.common.methods import METHODS, ROWS
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.report import published
from vlc_jax.setup import catalogue

CHECKPOINTS = "vl_compo"  # source of 136 values for each of 202 checkpoints
NUMBERS = "Published numbers to reproduce; none was reproduced at full size here:"


def text(name: str) -> str:
    """The docstring of a config, how it differs from its authors', and its published numbers.

    Raises UsageError, with the nearest name, for an unknown config.
    """
    path = Path(catalogue.find_config(name.partition(":")[0])).resolve()
    short = str(path).removeprefix(f"{catalogue.config_folder()}/").removesuffix(".py")
    parts = [ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""]
    methods = [method for method in METHODS.values() if method.config == short]
    for method in methods:
        if method.differs:
            parts.append(f"{method.title}, different here: {method.differs}.")
    own = [row for row in ROWS if row.config.partition(":")[0] == short]
    # a config without rows: those of its method, by another config
    rows = own or [row for method in methods for row in method.rows]
    rows = [row for row in rows if row.model]
    parts += [NUMBERS] if rows else []
    parts += ["\n".join([f"{row.config.rstrip(':')}: {row.model}", *_numbers(row.model)])
              for row in rows]  # fmt: skip
    return "\n\n".join(parts)


def _numbers(model: str) -> Iterator[str]:
    """A line per benchmark and source; reruns by others only where no author has a number."""
    values = published.model_values(model)
    kinds = published.sources()
    shown = [value for value in values if kinds[value.source]["kind"] != "rerun"]
    shown = shown or [value for value in values if value.source != CHECKPOINTS]
    lines: dict[tuple[str, str], dict[str, None]] = {}  # several tables print the same number
    for value in shown:
        unit = "" if value.unit in ("percent", "fraction") else f" {value.unit}"
        number = f"{value.full_metric} {value.value:.{value.decimals}f}{unit}"
        lines.setdefault((value.benchmark, kinds[value.source]["name"]), {})[number] = None
    for (benchmark, source), numbers in lines.items():
        yield f"  {benchmark}: {', '.join(numbers)} ({source})"
    if others := len(values) - len(shown):
        yield f"  {others} numbers by others: vlc-jax report RUN --published {model!r}"


def main(names: list[str]) -> int:
    """Prints the texts of the configs; returns the exit code."""

    def show(names: list[str]) -> int:
        print("\n\n".join(map(text, names)), flush=True)
        return errors.ExitCode.DONE

    return command_line.exit_code(show, names, title=lambda error: "Usage")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
