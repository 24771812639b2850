"""Validation of records, texts and image names, and the limit of bad records, for training,
preparation, checks and evaluation sets alike."""

from collections.abc import Mapping
from pathlib import Path, PurePath

from vlc_jax.input_pipeline.record import Conversation, DataError, Record

# characters; a longer text is a damaged file, not a caption
MAX_CAPTION = 100_000
# bytes, of Linux and of most file systems
_MAX_NAME, _MAX_PATH = 255, 4_095


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


def check_text(text: str, kind: str = "a text") -> None:
    """Raises DataError for a text too long for a caption, or with half a surrogate pair, which JSON
    can hold and UTF-8 cannot."""
    if len(text) > MAX_CAPTION:
        raise DataError(f"{kind} of {len(text):,} characters (limit {MAX_CAPTION:,})")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{kind} that is not Unicode: {error.reason}; got {text!r:.80}") from None


def path_below(folder: Path, name: str) -> Path:
    """The path of a file by its name in a folder.

    Raises DataError for a name that leads out of the folder, or that no file can have. Links inside
    the folder are followed, wherever they lead: only its owner can put them there.
    """
    parts = PurePath(name).parts
    if not parts or name.endswith("/"):
        raise DataError(f"the name of a folder in place of a file's; got {name!r:.80}")
    if PurePath(name).is_absolute() or ".." in parts:
        raise DataError(
            f"a file name that leads out of its folder; names are relative, without '..'; got "
            f"{name!r:.80}"
        )
    try:
        size = max(len(part.encode()) for part in parts)
        is_possible = size <= _MAX_NAME and len(name) <= _MAX_PATH and "\0" not in name
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise DataError(f"a name that no file can have; got {name!r:.80}")
    return folder / name


def check_share(bad: Mapping[str, str], limit: float, total: int) -> None:
    """Raises DataError, naming the last bad record, if more than `limit` of `total` are bad."""
    if len(bad) <= limit:
        return
    last = next(reversed(bad))
    raise DataError(
        f"{len(bad)} of {total:,} records cannot be used, more than the limit of {limit:g} "
        f"(max_bad_share); the last is {last}: {bad[last]}"
    )
