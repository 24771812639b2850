"""THE case contract: one question of an evaluation set, the correct caption first."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from input_pipeline.record import ImageLike


@dataclass(frozen=True)
class Case:
    """One question of a benchmark. The meaning of its fields depends on the protocol:

      choice      one image; `captions[0]` is correct, the others are wrong
      triplet     choice with a hard positive in `meta["positive"]` (a second correct caption)
      pairs       two images; `captions[k]` belongs to `images[k]`
      retrieval   one image and its 1..k captions, all correct
      zeroshot    one image, no captions, `meta["label"]` indexes `Benchmark.classes`
    `group` is any JSON value to split results by. `id` is unique within the benchmark and may be
    part of a file name.
    """

    id: str
    images: tuple[ImageLike, ...]
    captions: tuple[str, ...]
    group: Any = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """Evaluation set: a named list of cases, always the same for the same `version`.

    `classes` and `templates` belong to zero-shot classification; a template holds one `{}`, which
    `str.format` replaces by the class name.
    """

    name: str
    cases: Sequence[Case]
    version: str
    classes: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()

    @property
    def prompts(self) -> list[str]:
        """Zero-shot prompts: every class in every template, those of a class side by side."""
        templates = self.templates or ("{}",)
        return [template.format(name) for name in self.classes for template in templates]

    @property
    def texts(self) -> list[str]:
        """All texts of the benchmark, without repetitions."""
        of_cases = (
            text
            for case in self.cases
            for text in (*case.captions, case.meta.get("positive"))
            if text is not None
        )
        return list(dict.fromkeys([*self.prompts, *of_cases]))
