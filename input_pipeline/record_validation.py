"""Record validation and the limit of bad records, for training, preparation and checks alike."""

import re
from collections.abc import Mapping, Sequence

from vlc_jax.input_pipeline.record import Conversation, DataError, Record, check_text

_NO_WORD = re.compile(r"n\d{8}|(class|label)?[\d\W_]+")


def captions(record: Record) -> list[int]:
    """Positions of the usable captions: non-blank texts and conversations.

    Raises DataError if there is none.
    """
    usable = []
    for position, caption in enumerate(record.captions):
        if isinstance(caption, Conversation):
            caption = "".join(text for turn in caption.turns for text in turn)
        if not isinstance(caption, str):
            raise DataError(f"a caption is text; got {type(caption).__name__}")
        check_text(caption, "a caption")
        if caption.strip():
            usable.append(position)
    if not usable:
        raise DataError(f"no caption with any text among {len(record.captions)}")
    return usable


def check_share(bad: Mapping[str, str], limit: float, total: int) -> None:
    """Raises DataError, naming the last bad record, if more than `limit` of `total` are bad."""
    if len(bad) > limit:
        last = next(reversed(bad))
        check_count(len(bad), f"{last}: {bad[last]}", limit, total)


def check_count(bad: int, last: str, limit: float, total: int) -> None:
    """As `check_share`, by the number of bad records and the id and reason of the last."""
    if bad > limit:
        raise DataError(
            f"{bad} of {total:,} records cannot be used, more than the limit of {limit:g} "
            f"(max_bad_share); the last is {last}"
        )


def wordless(classes: Sequence[str]) -> str:
    """The first class that is a number or WordNet's id, if most are, which make no caption; ""."""
    numbers = [name for name in classes if _NO_WORD.fullmatch(name)]
    return numbers[0] if 2 * len(numbers) > len(classes) else ""
