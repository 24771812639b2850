"""THE case contract: one question of an evaluation set, the correct caption first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vlc_jax.input_pipeline.record import Caption, ImageLike


@dataclass(frozen=True)
class Case:
    """One question of a benchmark. The meaning of its fields depends on the protocol:

      choice      one image and several captions: `captions[0]` is correct, the others are wrong;
                  or one caption and several images: `images[0]` is correct
      triplet     choice with a hard positive in `meta["positive"]` (a second correct caption)
      pairs       two images; `captions[k]` belongs to `images[k]`
      retrieval   one image and its 1..k captions, all correct
      zeroshot, linear_probe
                  one image, no captions, `meta["label"]` indexes `Benchmark.classes`
      multilabel  the same with several in `meta["labels"]`
    `group` is any JSON value to split results by; an object {kind: label} splits by several kinds
    ({"subset": "A", "relation": "left of"}). `id` is unique within the benchmark and may be part of
    a file name. `meta["record"]` names the image if several cases share it.
    """

    id: str
    images: tuple[ImageLike, ...]
    captions: tuple[Caption, ...]
    group: Any = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Average:
    """An unweighted mean over groups, as papers print it.

    by: kinds of groups, outermost first: ("axis", "type") is the mean over axes of the mean over
      their types.
    floor: smallest number of cases of a group that enters the mean.
    drop: labels of the innermost kind that do not enter the mean.
    """

    by: tuple[str, ...]
    floor: int = 0
    drop: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Benchmark:
    """Evaluation set: a named list of cases, always the same for the same `version`.

    `classes` and `templates` belong to zero-shot classification; a template holds one `{}`, which
    `str.format` replaces by the class name. Classes may have equal names, as two pairs of ImageNet.
    averages: name -> mean over groups; metric "accuracy" then has `accuracy_NAME`, too.
    together: kinds of groups that are correct if all their cases are: kind "set" gives the metric
      "set_accuracy".
    summary: metrics of result tables, the main one first; empty: the protocol's.
    notes: remarks for readers of the result, such as missing cases.
    files: subset -> sha256 of its annotation file (of the hashes, if they are several); "": of all
      files. A label of kind "subset" in `Case.group` is a subset.
    training: labelled cases that a linear probe is fitted to.   validation: labelled cases that
      choose its regularisation.
    """

    name: str
    cases: Sequence[Case]
    version: str
    classes: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    averages: Mapping[str, Average] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    training: Sequence[Case] = ()
    validation: Sequence[Case] = ()

    @property
    def prompts(self) -> list[str]:
        """Zero-shot prompts: every class in every template, grouped by class."""
        templates = self.templates or ("{}",)
        return [template.format(name) for name in self.classes for template in templates]

    @property
    def texts(self) -> list[Caption]:
        """All texts of the benchmark, without repetitions."""
        case_texts = (
            text
            for case in self.cases
            for text in (*case.captions, case.meta.get("positive"))
            if text is not None
        )
        return list(dict.fromkeys([*self.prompts, *case_texts]))


def distinct_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Class names in which equal ones are told apart by their label: "missile (657)"."""
    times = Counter(classes)
    return tuple(
        f"{name} ({label})" if times[name] > 1 else name for label, name in enumerate(classes)
    )


def image_file(case_id: str, index: int) -> str:
    """File name of an image of a case, under evals/NAME/images."""
    return f"{case_id.replace('/', '_')}_{index}.png"


def maps_file(case_id: str) -> str:
    """File name of the patch maps of a case, under evals/NAME/maps."""
    return f"{case_id.replace('/', '_')}.npz"
