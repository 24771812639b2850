"""Benchmarks from the hard texts of any source: choice, triplet and pairs on your own data.

The source is a table, prepared shards, or a published file with hard negatives (sources crepe and
sugarcrepe). No record is skipped, since that would change the benchmark: a record without the texts
of the protocol raises DataError.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from vlc_jax.input_pipeline.benchmarks.from_source import (
    caption_positions,
    first_records,
    open_source,
)
from vlc_jax.input_pipeline.benchmarks.published import case_id
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError, Findable, Record, Source


def choice(
    split: str = "test", count: int | None = None, source: str = "records", **options: Any
) -> Benchmark:
    """Each caption of the first `count` records against its hard negatives."""
    cases, records = [], _open_rows(source, split, options)
    for index, record in first_records(records, count):
        for caption, negatives, _ in _hard_texts(record):
            if not negatives:
                raise _lacking(record, caption, "negatives")
            cases.append(_case(index, len(cases), record, (caption, *negatives)))
    return Benchmark("choice", tuple(cases), f"{records.fingerprint}/{len(cases)}")


def triplet(
    split: str = "test", count: int | None = None, source: str = "records", **options: Any
) -> Benchmark:
    """Each caption with a hard negative and a hard positive.

    A caption with n negatives and n positives makes n cases, negative k with positive k."""
    cases, records = [], _open_rows(source, split, options)
    for index, record in first_records(records, count):
        for caption, negatives, positives in _hard_texts(record):
            for kind, texts in (("negatives", negatives), ("positives", positives)):
                if not texts:
                    raise _lacking(record, caption, kind)
            if len(negatives) != len(positives):
                raise DataError(
                    f"benchmark record {record.id}: a triplet has one negative and one positive; "
                    f"caption {caption!r} has {len(negatives)} and {len(positives)}"
                )
            for negative, positive in zip(negatives, positives, strict=True):
                meta = {"positive": positive}
                cases.append(_case(index, len(cases), record, (caption, negative), meta))
    return Benchmark("triplet", tuple(cases), f"{records.fingerprint}/{len(cases)}")


def pairs(
    split: str = "test",
    count: int | None = None,
    source: str = "records",
    second: Mapping[str, str] | None = None,
    **options: Any,
) -> Benchmark:
    """Two images with a caption each, as in Winoground, from the first `count` records.

    second: options of the source that differ for the second image of a row, such as
      {"image_column": "image_1", "caption_column": "caption_1"}. Without it the second image and
      caption are those of the record's first hard image.
    """
    records = _open_rows(source, split, options)
    others = _open_rows(source, split, {**options, **second}) if second else None
    if others is not None and len(others) != len(records):
        raise ValueError(
            f"the two images of a pair are of one row, but {len(records)} rows have the first and "
            f"{len(others)} the second; a holdout by image names takes them apart: split='all'"
        )
    cases = []
    for index, record in first_records(records, count):
        other = others[index] if others is not None else _hard_image(records, record)
        captions = tuple(_one_caption(each) for each in (record, other))
        # equal captions tie under every model: the pair could only be wrong
        if captions[0] == captions[1]:
            raise DataError(f"benchmark record {record.id}: both captions are {captions[0]!r}")
        cases.append(
            Case(
                id=case_id(index, record.id),
                images=(record.image, other.image),
                captions=captions,
                group=record.group,
                meta={"record": record.id, "other": other.id},
            )
        )
    version = f"{records.fingerprint}/{len(cases)}"
    if others is not None:
        # covers the columns of the second image
        version += f"/{others.fingerprint}"
    return Benchmark("pairs", tuple(cases), version)


READERS = {  # name -> (reader, protocol)
    "choice": (choice, "choice"),
    "triplet": (triplet, "triplet"),
    "pairs": (pairs, "pairs"),
}


def _open_rows(source: str, split: str, options: Mapping[str, Any]) -> Source:
    """The records of a source; of a table, a record per row, whose group is that of its texts."""
    rows = {"join_rows": False} if source == "records" else {}
    return open_source(source, split, rows | options)


def _hard_texts(record: Record) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yields (caption, its negatives, its positives)."""
    for position in caption_positions(record):
        negatives, positives = (
            tuple(texts[position]) if texts else ()
            for texts in (record.negatives, record.positives)
        )
        yield record.captions[position], negatives, positives


def _one_caption(record: Record) -> str:
    positions = caption_positions(record)
    if len(positions) > 1:
        raise DataError(
            f"benchmark record {record.id}: an image of a pair has one caption; got "
            f"{len(positions)}"
        )
    return record.captions[positions[0]]


def _hard_image(records: Source, record: Record) -> Record:
    if not record.hard_images or not isinstance(records, Findable):
        raise DataError(
            f"benchmark record {record.id}: no second image; name the columns of the second image "
            "and caption, second={'image_column': ..., 'caption_column': ...}, or those of ids and "
            "hard images, id_column and hard_images_column"
        )
    return records.find(record.hard_images[0])


def _case(
    index: int,
    case: int,
    record: Record,
    captions: tuple[str, ...],
    meta: Mapping[str, Any] | None = None,
) -> Case:
    return Case(
        id=f"{case:06d}_{case_id(index, record.id)}",
        images=(record.image,),
        captions=captions,
        group=record.group,
        meta={"record": record.id, **(meta or {})},
    )


def _lacking(record: Record, caption: str, kind: str) -> DataError:
    return DataError(
        f"benchmark record {record.id}: caption {caption!r} has no {kind}; name their column, "
        f"{kind}_column, or make them (vlc-jax prepare)"
    )
