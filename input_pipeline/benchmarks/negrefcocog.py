"""NegRefCOCOg: an expression with a negation, the region of COCO that it means, and another one.

Park et al., "Know 'No' Better: A Data-Driven Approach for Enhancing Negation Awareness in CLIP"
(ICCV 2025); read and cropped like github.com/parkquasar/NegationCLIP (NegRefCOCOg).
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import Crop, DataError
from vlc_jax.input_pipeline.sources import region_captions

_SIDES = ("left", "top", "width", "height")


@published.reader
def negrefcocog(files: published.Files) -> Benchmark:
    """440 cases of "a zebra not eating grass", its region and another region of the same image.

    accuracy: the right region has the highest score. The authors' argmax takes the first of equal
      regions, and the right one is first: tie=first_index here.
    """
    return files.benchmark(_cases(files))


def _cases(files: published.Files) -> Iterator[Case]:
    kinds = {"image": fields.image_name, "ref_bbox": _box, "bbox_list": fields.anything}
    for number, row in enumerate(files.objects(files.file, "phrase", **kinds)):
        where = f"{files.folder / files.file}: case {number}"
        right, boxes = row["ref_bbox"], row["bbox_list"]
        try:
            for box in boxes if isinstance(boxes, list) else [boxes]:
                _box(box)
        except DataError as error:
            raise DataError(f"{where}, 'bbox_list': {error}") from None
        others = [box for box in boxes if box != right]
        if right not in boxes or not others:
            raise DataError(
                f"{where}: 'bbox_list' has 'ref_bbox' and another region; got {fields.shown(boxes)}"
            )
        image = files.image(row["image"])
        yield Case(
            published.case_id(number, row["image"]),
            tuple(Crop(image, _corners(box, where)) for box in (right, *others)),
            (row["phrase"],),
            None,
            {"record": row["image"]},
        )


def _box(value: Any) -> None:
    if not isinstance(value, list) or len(value) != len(_SIDES):
        raise DataError(f"a region is a list of {', '.join(_SIDES)}; got {fields.shown(value)}")


def _corners(box: list[Any], where: str) -> tuple[int, int, int, int]:
    """Left, top, right and bottom in pixels, rounded as Pillow's crop rounds them."""
    row = dict(zip(_SIDES, box, strict=True))
    region_captions.box(row, where, _SIDES)  # numbers of pixels
    left, top, width, height = map(float, box)
    return round(left), round(top), round(left + width), round(top + height)
