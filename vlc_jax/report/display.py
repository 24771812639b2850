"""Labels and order of a protocol in the report, stored with every result of an evaluation."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Display(NamedTuple):
    """The field `display` of evals/<name>/<step>.json (`vlc_jax.evaluators.Protocol`).

    order: place of the protocol in tables.
    correct: label of the metric behind `correct` in <step>.scores.jsonl; "": unknown, no paired
      test.
    roles: labels of scores in histograms: the correct option, the best wrong one, a hard positive.
    axis: of the plot of gain against forgetting: "compositional", "forgetting" or "".
    by_group: whether runs are compared group by group, in a figure of their own.
    asks: whether the protocol asks the model questions of its own, with or without VQAScore.
    """

    order: int = 1000  # behind all known protocols
    correct: str = ""
    roles: tuple[str, ...] = ("correct", "best wrong option")
    axis: str = ""
    by_group: bool = False
    asks: bool = False


DEFAULT = Display()


# Results written before they had the field: protocol -> its display, which never changes.
_EARLIER = {
    "retrieval": Display(
        0, "image→text R@1", ("own caption", "best other caption"), axis="forgetting"
    ),
    "zeroshot": Display(1, "accuracy", ("own class", "best other class"), axis="forgetting"),
    "linear_probe": Display(2, "accuracy", ("own class", "best other class")),
    "choice": Display(3, "accuracy", axis="compositional"),
    "triplet": Display(
        4,
        "augmented",
        ("correct caption", "hard negative", "hard positive"),
        axis="compositional",
        by_group=True,
    ),
    "pairs": Display(
        5, "pair", ("own caption", "caption of the other image"), axis="compositional"
    ),
    "keywords": Display(6, "accuracy", asks=True),
    "multiple_choice": Display(7, "pair", asks=True),
    "conditions": Display(8, "satisfied"),
    "superposition": Display(9, "superposition"),
    "binding": Display(10, "score"),
}


def of(result: Mapping[str, Any]) -> Display:
    """Display of a result; defaults for missing fields and for values of another type."""
    written = result.get("display")
    # results written before the field existed, or damaged ones
    if not isinstance(written, dict):
        return _EARLIER.get(str(result.get("protocol")), DEFAULT)
    values = {
        name: value
        for name, default in Display._field_defaults.items()
        if isinstance(value := written.get(name), type(default)) and name != "roles"
    }
    roles = written.get("roles")
    if isinstance(roles, list) and len(roles) > 1 and all(isinstance(x, str) for x in roles):
        values["roles"] = tuple(roles)
    return Display(**values)
