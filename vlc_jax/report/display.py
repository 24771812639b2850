"""Labels and order of a protocol in the report, stored with every result of an evaluation."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Display(NamedTuple):
    """The field `display` of evals/<name>/<step>.json (`vlc_jax.evaluators.Protocol`).

    order: place of the protocol in tables.
    correct: label of the metric behind `correct` in <step>.scores.jsonl; "": unknown, no paired
      test.
    by_group: whether runs are compared group by group, in a figure of their own.
    asks: whether the protocol asks the model questions of its own, with or without VQAScore.
    """

    order: int = 1000  # behind all known protocols
    correct: str = ""
    by_group: bool = False
    asks: bool = False


DEFAULT = Display()


def of(result: Mapping[str, Any]) -> Display:
    """Display of a result; defaults for missing fields and for values of another type."""
    written = result.get("display")
    fields = Display._field_defaults.items() if isinstance(written, dict) else ()
    values = {
        name: written[name] for name, default in fields if type(written.get(name)) is type(default)
    }
    return Display(**values)
