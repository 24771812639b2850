"""LLaVA's files: images and conversations about them, whose answers are the captions."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import Caption, Conversation, DataError, Record
from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.published import PublishedSource, joined_names

ANSWERS = ("first", "each", "joined", "conversation")
# Ends of the names of Img-Diff's two images, and of the record of both.
_LEFT, _RIGHT, _PAIR = "_0.jpg", "_1.jpg", "_{0,1}.jpg"
_BAR = 20  # black columns between them (arXiv:2408.04594, section 15.1)


class LlavaSource(PublishedSource):
    """LLaVA's files: an image and a conversation about it, whose answers are its captions.

    annotations: a JSON list of {"id", "image", "conversations": [{"from", "value"}, ...]}, or
      several, joined by "+": blip_laion_cc_sbu_558k.json+llava_v1_5_mix665k.json. Entries without
      an image are left out and counted in the log, unless text_only.
    images: the folder in which the image names start, or several, joined by "+", which are searched
      in this order.
    answers: the answers ("from": "gpt") that are captions. first; each: all, of which training
      draws one at each reading; joined: one caption of all answers; conversation: all turns as a
      Conversation, without the first "<image>".
    text_only: whether entries without an image, 40,688 of mix-665K, are records, too.
    The image of an entry of Img-Diff (Jiao et al. 2024, arXiv:2408.04594), {"path", "bbox",
    "conversations"}, is PATH_0.jpg and PATH_1.jpg side by side with a black bar between them.
    With first and each, the question of an answer is the turn before it, without "<image>".
    `meta` has `id`, which is not unique in the files, `conversations` and `image`, a name. Ids are
    the image's name and the entry's number in the lists.
    """

    _kind = "llava"
    _columns: ClassVar = {
        "caption_column": "conversations",
        "meta_columns": ("id", "conversations"),
    }
    _expected_file = (
        "a list of {id, image, conversations}, such as llava_instruct_150k.json or "
        "llava_v1_5_mix665k.json (https://huggingface.co/datasets/liuhaotian/LLaVA-Instruct-150K, "
        "CC BY 4.0) or blip_laion_cc_sbu_558k.json (.../liuhaotian/LLaVA-Pretrain), or several of "
        "them joined by '+'"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        answers: str = "first",
        text_only: bool = False,
        exclude: str | Path | None = None,
    ) -> None:
        lookup.check_known("kind of answers", [answers], ANSWERS)
        self._answers, self._text_only = answers, text_only
        self.has_text_only = False  # `_conversations` sets it
        first, *self._more_files = joined_names(annotations)
        self._folders = [Path(folder) for folder in joined_names(images)]
        for folder in self._folders[1:]:
            if not folder.is_dir():
                raise ValueError(f"no image folder {folder}; set {self._folder_option}")
        folder = self._folders[0] if str(images) else ""
        super().__init__(split, annotations=first, images=folder, exclude=exclude)

    def __getitem__(self, index: int) -> Record:
        """Raises DataError, naming the row, for a row that does not make a record."""
        record = super().__getitem__(index)
        if isinstance(record.image, Path) and record.id.rpartition("#")[0].endswith(_PAIR):
            record = dataclasses.replace(record, image=_side_by_side(record.image))
        if record.image is not None:
            # no column of `_columns`: fingerprints would change. Several entries have an image
            image = record.id.rpartition("#")[0]
            record = dataclasses.replace(record, meta={**record.meta, "image": image})
        if self._answers not in ("first", "each"):
            return record
        turns = record.meta["conversations"]
        questions = [
            _question(turns[number - 1] if number else {})
            for number, turn in enumerate(turns)
            if turn.get("from") == "gpt"
        ]
        return dataclasses.replace(record, questions=questions[: len(record.captions)])

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        parts = [self._conversations(path)]
        for other in map(Path, self._more_files):
            self._check_file(other)
            parts.append(self._conversations(other))
            self.digests[str(other)] = parts[-1].digest
        return parts[0] if len(parts) == 1 else tables.JoinedTable(parts)

    def _conversations(self, path: Path) -> tables.MemoryTable:
        document = self._load(path)
        rows = (
            [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []
        )
        if not rows or len(rows) < len(document) or "conversations" not in rows[0]:
            raise self._wrong_file(path, json_annotations.describe(document))
        rows = [_conversation_row(row) for row in rows]
        numbers = [number for number, row in enumerate(rows, start=1) if row.get("image")]
        left_out = len(rows) - len(numbers)
        if self._text_only:
            self.has_text_only |= left_out > 0
            for row in rows:
                # the column must exist even if no entry has an image
                row.setdefault("image", None)
            return tables.MemoryTable(path, rows, range(1, len(rows) + 1))
        json_annotations.mention(path, left_out, len(rows), "entries have no image")
        if not numbers:
            raise self._wrong_file(path, "a list of conversations without any image")
        used = [rows[number - 1] for number in numbers]
        return tables.MemoryTable(path, used, numbers)

    def _has_image(self, row: dict[str, Any]) -> bool:
        return bool(row.get("image"))

    def _record_id(self, row: dict[str, Any], row_index: int) -> str:
        if self._has_image(row):
            return super()._record_id(row, row_index)
        return f"text_only#{self._table.number(row_index)}"

    def _candidate_paths(self, image: str) -> list[Path]:
        if image.endswith(_PAIR):
            image = image.removesuffix(_PAIR) + _LEFT
        return [folder / image for folder in self._folders]

    def _fingerprint(self, *further: Any) -> str:
        # digests are sorted in the base class, but ids depend on the order of several files
        order = [*self.digests.values()] if self._more_files else []
        text_only = ["text_only"] if self.has_text_only else []
        return super()._fingerprint(self._answers, order, *text_only, *further)

    def _read_captions(self, row: dict[str, Any], name: str) -> list[Caption]:
        turns = row.get("conversations")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise DataError(f"{name}: 'conversations' is a list of objects; got {turns!r:.80}")
        if self._answers == "conversation":
            return [_dialogue(turns, name, has_image=self._has_image(row))]
        answers = [turn.get("value") for turn in turns if turn.get("from") == "gpt"]
        if not answers or not all(isinstance(answer, str) for answer in answers):
            speakers = [turn.get("from") for turn in turns]
            raise DataError(f"{name} has no answer of 'gpt' in 'conversations'; from: {speakers}")
        if self._answers == "joined":
            return [" ".join(answer.strip() for answer in answers)]
        return answers[:1] if self._answers == "first" else answers


def _conversation_row(row: dict[str, Any]) -> dict[str, Any]:
    """An entry of Img-Diff as one of LLaVA, whose image is the pair; others as they are."""
    if "image" in row or not row.keys() >= {"path", "bbox"}:
        return row
    return {"id": row["path"], **row, "image": f"{row['path']}{_PAIR}"}


def _side_by_side(left: Path) -> np.ndarray:
    """Pixels of a pair, uint8 (height, 2 width + 20, 3); the right image gets the left one's size.

    left: path of the left image.
    """
    right = left.with_name(left.name.removesuffix(_LEFT) + _RIGHT)
    one, other = image_ops.open_rgb(left), image_ops.open_rgb(right)
    both = Image.new("RGB", (2 * one.width + _BAR, one.height))
    both.paste(one)
    both.paste(other.resize(one.size), (one.width + _BAR, 0))
    return np.asarray(both)


def _question(turn: dict[str, Any]) -> str:
    """The question of a turn, without "<image>"; "" if the turn is not a question."""
    value = turn.get("value")
    is_question = turn.get("from") == "human" and isinstance(value, str)
    return value.replace("<image>", "").strip() if is_question else ""


def _dialogue(turns: list[dict[str, Any]], name: str, *, has_image: bool) -> Conversation:
    """The conversation of an entry's turns.

    With an image, the first question loses "<image>" and surrounding white space. As in LLaVA's
    code, a first turn of "gpt" is left out. Raises DataError unless "human" and "gpt" take turns,
    with strings.
    """
    # LLaVA's code drops an answer that no question comes before
    turns = turns[1:] if turns and turns[0].get("from") == "gpt" else turns
    speakers = [turn.get("from") for turn in turns]
    values = [turn.get("value") for turn in turns]
    if not turns or speakers != ["human", "gpt"] * (len(turns) // 2):
        raise DataError(f"{name}: 'human' and 'gpt' take turns in a conversation; got {speakers}")
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{name}: the 'value' of every turn is a text; got {values!r:.80}")
    if has_image:
        values[0] = values[0].replace("<image>", "", 1).strip()
    return Conversation(tuple(zip(values[::2], values[1::2], strict=True)), has_image)
