"""Benchmarks from a training-style source: retrieval, zero-shot classification, linear probes."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import lookup, record_validation
from vlc_jax.input_pipeline.benchmarks.published import case_id
from vlc_jax.input_pipeline.benchmarks.shuffled import with_shuffles
from vlc_jax.input_pipeline.case import Benchmark, Case, distinct_names
from vlc_jax.input_pipeline.record import DataError, Record, Source, has_text_only
from vlc_jax.input_pipeline.sources import image_files, prompt_texts

_MOST = 10_000_000  # records of a benchmark: a generated source has any number
# Metrics of zero-shot classification in result tables, the headline first (`metric`).
_HEADLINES = {
    "accuracy": (),
    "mean_per_class_recall": ("mean_per_class_recall", "accuracy", "accuracy_top5"),
}


def retrieval(
    split: str = "test", count: int | None = None, source: str = "records", **options: Any
) -> Benchmark:
    """Image <-> caption retrieval among the first `count` records of any source.

    A case is one image with all its captions, which a table may have in several rows. Unlike in
    training, no record is skipped, since that would change the benchmark: a record without captions
    raises DataError.
    """
    records = open_source(source, split, options)
    cases = []
    for index, record in first_records(records, count):
        captions = tuple(record.captions[position] for position in caption_positions(record))
        name, meta = case_id(index, record.id), {"record": record.id}
        cases.append(Case(name, (record.image,), captions, record.group, meta))
    notes = _notes_on_images(cases)
    return Benchmark("retrieval", tuple(cases), f"{_version(records)}/{len(cases)}", notes=notes)


def _version(records: Source) -> str:
    """Fingerprint of the records and, of files known by their names alone, of some sizes."""
    sizes = getattr(records, "image_sizes", None)
    content = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:8]
    return f"{records.fingerprint}/{content}" if sizes else records.fingerprint


def zeroshot(
    split: str = "test",
    count: int | None = None,
    source: str = "digits",
    class_names: str | Path | Sequence[str] | None = None,
    templates: str | Path | Sequence[str] | None = None,
    class_ids: str | Path | Sequence[str] | None = None,
    metric: str = "accuracy",
    **options: Any,
) -> Benchmark:
    """Zero-shot classification on a source whose records have `meta["label"]`.

    Such sources (`digits`, `tfds` with a label, `labelled`) define default `classes` and, most of
    them, `templates`.

    class_names: other names of the classes in prompts ("tench" for n01440764), in the order of the
      labels, or each with the source's name or the label in front ("n01440764 tench", "0: tench"):
      a list, a text file with a name per line or a list or dict in Python, or a .json file with a
      list or an object {source's name: name}. FILE.json:NAME is the entry NAME of an object, as in
      CLIP_benchmark's en_classnames.json:imagenet1k.
    class_ids: the source's names of all class_names, in their order, if the source has a part of
      the classes: a list, or a text file whose lines begin with them (LOC_synset_mapping.txt).
    templates: prompts with {} (or CLIP_benchmark's {c}) for the class: a list, a text file with one
      per line, plain or a string or lambda in Python, a .json file with a list, FILE.json:NAME, or
      a single template.
    metric: the headline: accuracy or mean_per_class_recall.

    Equal class names, of which ImageNet's published ones have two pairs, are named in a note.
    Raises ValueError unless class names are one per class, for classes that are no words
    (n01440764) without class_names, and without any templates.
    """
    lookup.check_known("metric", [metric], _HEADLINES)
    benchmark = _classification(
        "label", split, count, source, (class_names, class_ids), templates, options
    )
    return dataclasses.replace(benchmark, name="zeroshot", summary=_HEADLINES[metric])


def multilabel(
    split: str = "test",
    count: int | None = None,
    source: str = "labelled",
    class_names: str | Path | Sequence[str] | None = None,
    templates: str | Path | Sequence[str] | None = None,
    class_ids: str | Path | Sequence[str] | None = None,
    **options: Any,
) -> Benchmark:
    """Zero-shot classification of images of several classes, `meta["labels"]` of the records.

    Options as in `zeroshot`.
    """
    benchmark = _classification(
        "labels", split, count, source, (class_names, class_ids), templates, options
    )
    return dataclasses.replace(benchmark, name="multilabel")


def _classification(
    field: str,
    split: str,
    count: int | None,
    source: str,
    names_and_ids: tuple[prompt_texts.Texts | None, prompt_texts.Texts | None],
    templates: prompt_texts.Texts | None,
    options: Mapping[str, Any],
) -> Benchmark:
    """A benchmark without name. field: of `Record.meta`, "label" or "labels"."""
    class_names, class_ids = names_and_ids
    records = _labelled(source, split, options)
    classes, prompts = tuple(records.classes), tuple(records.templates)
    version = _version(records)
    if class_names is None:
        is_named = getattr(records, "has_names", False)
        if number := "" if is_named else record_validation.wordless(classes):
            raise ValueError(
                f"classes such as {number!r} are no words for a prompt: name them by class_names "
                "(docs/benchmarks.md, classification; for digits the same numbers)"
            )
        if class_ids is not None:
            raise ValueError("class_ids are the source's names of class_names: set both")
        # folders have underscores for spaces, as in the captions of their source
        if any("_" in name for name in classes):
            class_names = [name.replace("_", " ") for name in classes]
    if class_names is not None:
        classes = prompt_texts.class_names(class_names, classes, class_ids)
    if templates is not None:
        prompts = prompt_texts.templates(templates)
    if not prompts:
        raise ValueError(
            f"source {source!r} has no templates for its classes: set templates (a list, a file, "
            "or CLIP_benchmark's en_zeroshot_classification_templates.json:NAME)"
        )
    if (class_names, templates) != (None, None):
        version += f"/{hashlib.sha256(json.dumps([classes, prompts]).encode()).hexdigest()[:16]}"
    names = distinct_names(classes) if class_names is not None else None
    cases = _cases_of_classes(records, count, names, field)
    notes = _notes_on_classes(classes)
    return Benchmark("", cases, f"{version}/{len(cases)}", classes, prompts, notes=notes)


def linear_probe(
    split: str = "test",
    count: int | None = None,
    source: str = "digits",
    train_split: str = "train",
    train_count: int | None = None,
    validation_split: str | None = None,
    **options: Any,
) -> Benchmark:
    """Linear probe of frozen image features, on a source with labels (`zeroshot`).

    train_split, train_count: records to fit the probe. validation_split: records to choose its
    regularisation; by default every fifth training record. Splits may differ in their classes:
    labels are those of training, by name.
    """
    lookup.check_count("train_count", train_count)
    parts = {"test": _labelled(source, split, options)}
    parts["train"] = _labelled(source, train_split, options)
    training = _cases_of_classes(parts["train"], train_count)
    if validation_split is None:
        # every fifth, not the last fifth: sources may be sorted by class
        validation, training = training[::5], tuple(c for n, c in enumerate(training) if n % 5)
    else:
        parts["validation"] = _labelled(source, validation_split, options)
        validation = _cases_of_classes(parts["validation"], None)
    cases = _cases_of_classes(parts["test"], count)
    classes = tuple(parts["train"].classes)
    differ = any(tuple(records.classes) != classes for records in parts.values())
    if differ:
        # classes that training lacks come last, and the probe refuses their cases
        others = (name for records in parts.values() for name in records.classes)
        classes = tuple(dict.fromkeys([*classes, *others]))
        cases = _relabelled(cases, parts["test"].classes, classes)
        if "validation" in parts:
            validation = _relabelled(validation, parts["validation"].classes, classes)
    sizes = f"{len(cases)}/{len(training)}/{len(validation)}"
    version = "/".join([*map(_version, parts.values()), sizes])
    return Benchmark(
        "linear_probe", cases, version, classes, training=training, validation=validation
    )


READERS: dict[str, tuple[Callable[..., Benchmark], str]] = {  # name -> (reader, protocol)
    "retrieval": (with_shuffles(retrieval), "retrieval"),
    "zeroshot": (zeroshot, "zeroshot"),
    "multilabel": (multilabel, "multilabel"),
    "linear_probe": (linear_probe, "linear_probe"),
}


def _labelled(source: str, split: str, options: Mapping[str, Any]) -> Source:
    records = open_source(source, split, options)
    if not getattr(records, "classes", ()):
        raise ValueError(f"classification needs labels; source {source!r} has none")
    return records


def _cases_of_classes(
    records: Source, count: int | None, names: Sequence[str] | None = None, field: str = "label"
) -> tuple[Case, ...]:
    """Cases of the first `count` records. names: class names instead of the records' groups.

    field: "label" or "labels". Raises DataError for a record without it.
    """
    cases = []
    for index, record in first_records(records, count):
        if field not in record.meta:
            readers = "zeroshot and linear_probe have one class per image, multilabel has several"
            raise DataError(f"record {record.id} has no {field!r}: {readers}")
        label = record.meta[field]
        group = record.group if names is None or field == "labels" else names[label]
        meta = {field: label, "record": record.id}
        cases.append(Case(case_id(index, record.id), (record.image,), (), group, meta))
    return tuple(cases)


def _relabelled(
    cases: Sequence[Case], names: Sequence[str], classes: Sequence[str]
) -> tuple[Case, ...]:
    """The cases with labels of `classes` in place of labels of `names`, by name."""
    labels = {name: label for label, name in enumerate(classes)}
    return tuple(
        dataclasses.replace(case, meta=case.meta | {"label": labels[names[case.meta["label"]]]})
        for case in cases
    )


def _notes_on_classes(classes: Sequence[str]) -> tuple[str, ...]:
    names = [repr(name) for name, times in Counter(classes).items() if times > 1]
    if not names:
        return ()
    return (
        f"several classes have the name {', '.join(names[:3])}{', ...' if names[3:] else ''}: "
        "their prompts tie, and the first of them counts, as with argmax",
    )


def _notes_on_images(cases: Sequence[Case]) -> tuple[str, ...]:
    """A note on images that several cases show: the captions of one are wrong for the other."""
    file_key = image_files.FileKeys()
    images = (case.images[0] for case in cases if isinstance(case.images[0], Hashable))
    times = Counter(file_key(str(each)) if isinstance(each, Path) else each for each in images)
    repeated = sum(times.values()) - len(times)
    if not repeated:
        return ()
    return (
        f"{repeated:,} of {len(cases):,} cases show an image of another case, whose captions count "
        "as wrong for it",
    )


def open_source(source: str, split: str, options: Mapping[str, Any]) -> Source:
    """The records of a training source. Raises ValueError if some have no image."""
    from vlc_jax.input_pipeline.sources import make_source

    records = make_source(source, split, **options)
    if has_text_only(records):
        raise ValueError(
            f"records of a benchmark have an image, and some of {source!r} have none: set its "
            "option text_only=False"
        )
    return records


def first_records(records: Source, count: int | None) -> Iterator[tuple[int, Record]]:
    """Yields (index, record) of the first `count` records; None: all. Raises ValueError for 0."""
    lookup.check_count("count", count)
    indices = range(len(records))[:count]
    if len(indices) > _MOST:
        raise ValueError(f"a benchmark has at most {_MOST:,} records; got {len(indices):,}")
    for index in indices:
        yield index, records[index]


def caption_positions(record: Record) -> list[int]:
    """Positions of the valid captions of a record. Raises DataError if there are none."""
    try:
        return record_validation.captions(record)
    except DataError as error:
        raise DataError(f"benchmark record {record.id}: {error}") from error
