"""Makes training data of DCSM from your own images, in its authors' format:

  vlc-jax composites --objects objects --backgrounds photos --out pairs
  vlc-jax composites --instances coco/annotations/instances_train2017.json --out pairs

Objects: pictures with a transparent background, named by the object (mug.png, or mug/1.png and
mug/2.png). Two of them on a random part of a background (default: one light grey) make the images
of three folders in OUT, --count in each, or all combinations if there are fewer:

  objaverse_train_composite_newrelations_withbg  A_above_B.png (below, leftof, rightof) and
      CUTMIX_A_above_B.png: the objects exchanged
  objaverse_attributes_overlay_withbg            red_A_blue_B.png, the objects in these colours, and
      MIRROR_red_A_blue_B.png: the colours exchanged
  objaverse_smallbig_withbg                      small_A_big_B.png and MIRROR_small_A_big_B.png

Instances: COCO's instances JSON. It gives negated_pairs_cocotrain_v1.json: --count pairs of images,
of which the first shows an object that the second lacks, and the other way round. An object that is
shown covers --least-area of the image; one that is lacking has no annotation. Image names are those
of the JSON; train with image_folder=coco/train2017. --names FILE, {"couch": "sofa", ...}, has the
other names of the second wording; an object without one keeps its name.

Objects, backgrounds, sizes, places and colours are yours and ours, so results are not the paper's;
the authors' files are on Google Drive (github.com/Raphoo/DCSM_Ideal_CLIP). Training reads both with
configs/dcsm.py:data=coco,pairs=OUT. A folder or file that exists is not replaced. Exit code 0:
done; 2: wrong request; 3: images or annotations that cannot be read.
"""

import argparse
import itertools
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.images import composite, image_ops, transforms
from vlc_jax.input_pipeline.images.composite import Placed
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_list, json_annotations, opposites
from vlc_jax.input_pipeline.stores import progress

# .46 apart, the longest of SIDES: two objects may touch, but neither hides the other
CENTRES = {
    "above": (0.5, 0.27),
    "below": (0.5, 0.73),
    "leftof": (0.27, 0.5),
    "rightof": (0.73, 0.5),
}
MOVED = 0.05  # of the side: most that a centre is moved
SIDES = (0.34, 0.46)  # of an object, in shares of the picture's side
SIZES = {"small": 0.2, "big": 0.5}
TRIES = 1000  # draws of a pair of objects without images before no further pair is made
Pictures = Sequence[Image.Image]
Images = tuple[tuple[Placed, ...], tuple[Placed, ...]]  # an image and its opposite


class Combination(NamedTuple):
    """Two objects, and the relation between them or the attribute of each."""

    name: str  # of the file, without its suffix
    objects: tuple[str, str]
    words: tuple[str, ...]


def _run(words: list[str]) -> int:
    options = _parser().parse_args(words)
    if (options.objects is None) == (options.instances is None):
        raise ValueError("name --objects FOLDER or --instances JSON")
    if options.instances is not None:
        return _negations(options)
    objects = _objects(options.objects)
    for folder, combinations, draw in (
        (opposites.SPATIAL, _relations(objects), _spatial),
        (opposites.ATTRIBUTES, _attributes(objects, [*composite.COLOURS]), _coloured),
        (opposites.SIZES, _attributes(objects, [*SIZES]), _sized),
    ):
        count = _write(options, folder, combinations, objects, draw)
        print(f"{options.out / folder}: {count:,} images and {count:,} opposites")
    return 0


def _objects(folder: Path) -> dict[str, list[Image.Image]]:
    """Name -> its cut-out pictures. Raises ValueError and DataError for unusable ones."""
    objects = defaultdict(list)
    for name in image_list.read(folder).names:
        path = folder / name
        called = path.parent.name if path.parent != folder else path.stem
        if len(Path(name).parts) > 2:
            raise ValueError(f"{path}: pictures are OBJECT.png or OBJECT/ANY.png; move it up")
        if "_" in called:
            # of the files that training reads, A_above_B.png
            raise ValueError(f"{path}: '_' divides the names of the images; rename {called!r}")
        image_ops.open_rgb(path)  # raises DataError for a damaged file
        with Image.open(path) as picture:
            cut_out = composite.trimmed(picture)
        if cut_out is None:
            raise DataError(
                f"{path} has no transparent background, or nothing else: cut the object out first"
            )
        objects[called].append(cut_out)
    if len(objects) < 2:
        raise ValueError(f"{folder} has {len(objects)} objects; pairs need at least two")
    return dict(objects)


def _relations(objects: Sequence[str]) -> list[Combination]:
    pairs = itertools.permutations(objects, 2)
    return [
        Combination(f"{a}_{relation}_{b}", (a, b), (relation,))
        for (a, b), relation in itertools.product(pairs, CENTRES)
    ]


def _attributes(objects: Sequence[str], values: Sequence[str]) -> list[Combination]:
    pairs, both = itertools.permutations(objects, 2), itertools.permutations(values, 2)
    return [
        Combination(f"{c}_{a}_{d}_{b}", (a, b), (c, d))
        for (a, b), (c, d) in itertools.product(pairs, both)
    ]


def _write(
    options: argparse.Namespace,
    folder: str,
    combinations: list[Combination],
    objects: dict[str, list[Image.Image]],
    draw: Callable[[Pictures, tuple[str, ...], np.random.Generator], Images],
) -> int:
    """Writes the images of one folder, opposites included; returns the number of pairs."""
    out = options.out / folder
    if out.exists():
        raise ValueError(f"{out} exists; name another --out, or remove it")
    partial = out.with_name(f"{folder}.partial")
    # images of a killed command with other objects or another --count would join the folder
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    # by the folder's name: one that is made again alone has the images that it had among the three
    rng = np.random.default_rng([options.seed, *folder.encode()])
    chosen = rng.permutation(len(combinations))[: options.count]
    backgrounds = image_list.read(options.backgrounds) if options.backgrounds else None
    prefix = opposites.OPPOSITE["spatial" if folder == opposites.SPATIAL else "attributes"]
    with progress.bar(folder, len(chosen)) as advance:
        for number, index in enumerate(chosen):
            name, pair, words = combinations[index]
            background = _background(backgrounds, options.size, rng)
            cut_outs = [objects[each][int(rng.integers(len(objects[each])))] for each in pair]
            for begin, placed in zip(("", prefix), draw(cut_outs, words, rng), strict=True):
                composite.compose(background, placed).save(partial / f"{begin}{name}.png")
            advance(number + 1)
    partial.rename(out)
    return len(chosen)


def _background(
    images: image_list.ImageList | None, size: int, rng: np.random.Generator
) -> Image.Image:
    """A square picture: a random part of one of the images, or light grey."""
    if images is None:
        return Image.new("RGB", (size, size), (int(rng.integers(200, 245)),) * 3)
    path = images.path(images.names[int(rng.integers(len(images.names)))])
    picture = image_ops.open_rgb(path)
    return transforms.random_resized_crop(picture, size, (0.5, 1.0), (0.9, 1.1), rng)


def _moved(centre: tuple[float, float], rng: np.random.Generator) -> tuple[float, float]:
    x, y = (at + float(by) for at, by in zip(centre, rng.uniform(-MOVED, MOVED, 2), strict=True))
    return x, y


def _spatial(cut_outs: Pictures, words: tuple[str, ...], rng: np.random.Generator) -> Images:
    """A in the relation to B, and the two in each other's place."""
    (relation,) = words
    centres = [_moved(CENTRES[each], rng) for each in (relation, opposites.INVERSE[relation])]
    sides = [float(side) for side in rng.uniform(*SIDES, 2)]
    placed = tuple(map(Placed, cut_outs, centres, sides))
    return placed, tuple(map(Placed, cut_outs, centres[::-1], sides))


def _coloured(cut_outs: Pictures, words: tuple[str, ...], rng: np.random.Generator) -> Images:
    """A and B side by side in two colours, and with the colours exchanged."""
    places = _side_by_side(rng)
    sides = [float(side) for side in rng.uniform(*SIDES, 2)]
    return tuple(
        tuple(map(Placed, map(composite.tinted, cut_outs, colours), places, sides))
        for colours in (words, words[::-1])
    )


def _sized(cut_outs: Pictures, words: tuple[str, ...], rng: np.random.Generator) -> Images:
    """A and B side by side, one small and one big, and with the sizes exchanged."""
    places = _side_by_side(rng)
    return tuple(
        tuple(map(Placed, cut_outs, places, (SIZES[first], SIZES[second])))
        for first, second in (words, words[::-1])
    )


def _side_by_side(rng: np.random.Generator) -> list[tuple[float, float]]:
    """Two centres, left and right in random order: the first named is not always the left one."""
    centres = [_moved(CENTRES[each], rng) for each in ("leftof", "rightof")]
    return centres[:: 1 if rng.uniform() < 0.5 else -1]


def _negations(options: argparse.Namespace) -> int:
    """Writes pairs of images of which each lacks the other's object."""
    out = options.out / opposites.NEGATION
    if out.exists():
        raise ValueError(f"{out} exists; name another --out, or remove it")
    others = json_annotations.load(options.names) if options.names else {}
    if not isinstance(others, dict) or not all(isinstance(name, str) for name in others.values()):
        raise ValueError(f"{options.names} is no JSON object of other names by names")
    shown, seen = _categories(options.instances, options.least_area)
    rng = np.random.default_rng([options.seed, *opposites.NEGATION.encode()])
    pairs = [*itertools.islice(_pairs(shown, seen, others, rng), options.count)]
    if not pairs:
        raise DataError(f"{options.instances} has no two objects that are seen apart")
    out.parent.mkdir(parents=True, exist_ok=True)
    with stores.replacing(out) as file:
        file.write(json.dumps(pairs, indent=1) + "\n")
    print(f"{out}: {len(pairs):,} pairs of images of {len(shown)} objects")
    return 0


def _pairs(
    shown: dict[str, list[str]],
    seen: dict[str, set[str]],
    others: dict[str, str],
    rng: np.random.Generator,
) -> Iterator[dict[str, Any]]:
    """Entries of the authors' file; ends after TRIES draws of objects that always come together."""
    names, failed, known = sorted(shown), 0, set()
    while failed < TRIES and len(names) > 1:
        both = [names[i] for i in rng.choice(len(names), 2, replace=False)]
        images = []
        for name, lacked in (both, both[::-1]):
            image = shown[name][int(rng.integers(len(shown[name])))]
            # not `shown`: an object too small to be shown is still there
            images += [image] if lacked not in seen[image] else []
        if len(images) < 2 or (*images, *both) in known:
            failed += 1
            continue
        failed = 0
        known.add((*images, *both))
        entry: dict[str, Any] = {}
        for which, image, name in zip(("img1", "img2"), images, both, strict=True):
            entry |= {f"{which}_path": image, f"{which}_obj": [name, others.get(name, name)]}
        yield entry


def _categories(path: Path, least: float) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Object -> images that show it, and image -> all objects in it, of COCO's instances JSON."""
    document = json_annotations.load(path)
    try:
        names = {each["id"]: str(each["name"]) for each in document["categories"]}
        images = {each["id"]: each for each in document["images"]}
        areas: dict[tuple[str, str], float] = defaultdict(float)
        for each in document["annotations"]:
            image = images[each["image_id"]]
            share = each["area"] / (image["height"] * image["width"])
            areas[image["file_name"], names[each["category_id"]]] += share
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(
            f"{path} is no instances JSON of COCO, with categories, images (file_name, height, "
            f"width) and annotations (image_id, category_id, area): {error!r}"
        ) from None
    shown: dict[str, list[str]] = defaultdict(list)
    seen: dict[str, set[str]] = defaultdict(set)
    for (image, name), share in areas.items():
        seen[image].add(name)
        if share >= least:
            shown[name].append(image)
    return dict(shown), seen


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("composites", __doc__)
    parser.add_argument("--objects", type=Path, metavar="FOLDER", help="cut-out pictures")
    parser.add_argument("--backgrounds", type=Path, metavar="FOLDER", help="default: light grey")
    parser.add_argument("--instances", type=Path, metavar="JSON", help="instances_train2017.json")
    parser.add_argument("--names", type=Path, metavar="JSON", help="other names of objects")
    parser.add_argument("--out", required=True, type=Path, metavar="OUT")
    count = "pairs of each folder or file; default: 5000"
    parser.add_argument("--count", type=command_line.positive, default=5000, help=count)
    size = "side of the pictures in pixels; default: 224"
    parser.add_argument("--size", type=command_line.number(int, 16), default=224, help=size)
    area = "share of an image that a shown object covers; default: .02"
    parser.add_argument("--least-area", type=float, default=0.02, help=area)
    parser.add_argument("--seed", type=command_line.number(int, 0), default=0)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
