"""CLIP-blind pairs: images that one model takes for alike and another one does not.

  vlc-jax embed --model ViT-L-14.pt --images photos --out clip.npy
  vlc-jax embed --model dinov2-large --images photos --out dinov2.npy
  vlc-jax blind_pairs --features clip.npy --other dinov2.npy --out pairs.jsonl

Tong et al. ("Eyes Wide Shut?", 2024) take the pairs with a cosine above .95 of CLIP's embeddings
and below .6 of DINOv2's; MMVP's questions are about such pairs. Features: X.npy of vlc-jax embed or
of any other model, and beside it X.jsonl with the name of each row's image, the same names for
both. Rows with NaN, infinity or length 0 are in no pair.

OUT has a row for each pair, the earlier image of --features first:

  image, other_image     names
  cosine, other_cosine   of --features and of --other

Features are read in blocks of --block rows, so memory does not grow with their number. A killed
command leaves no OUT and starts over. Exit codes are those of vlc_jax.main.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.evaluators.image_pairs import AGREEMENT, DIFFERENCE
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.tools import command, nearest


def command_line_parser() -> argparse.ArgumentParser:
    """The parser of the options above."""
    parser = command_line.parser("blind_pairs", __doc__)
    parser.add_argument("--features", required=True, type=Path, metavar="X.npy")
    parser.add_argument("--other", required=True, type=Path, metavar="Y.npy")
    parser.add_argument("--out", required=True, type=Path, metavar="OUT.jsonl")
    for name, value, of in (("above", AGREEMENT, "features"), ("below", DIFFERENCE, "other")):
        text = f"cosine of --{of}; default: {value}"
        parser.add_argument(f"--{name}", type=float, default=value, metavar="COSINE", help=text)
    parser.add_argument("--block", type=command_line.positive, default=4096, help="default: 4096")
    return parser


def mine(args: argparse.Namespace) -> str:
    """Runs the command; returns the summary line."""
    if args.out.exists():
        raise UsageError(f"{args.out} exists; name a new file, or remove it")
    with usage_errors():
        both = nearest.read_features(args.features), nearest.read_features(args.other)
    names = both[0].names
    if names != both[1].names:
        raise UsageError(
            f"{args.features} and {args.other} are of other images ({len(names):,} and "
            f"{len(both[1].names):,}), or in another order: embed the same folder or table twice"
        )
    count = 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with stores.replacing(args.out) as file, progress.bar("images", len(names)) as advance:
        for done, blind in pairs(both, args.above, args.below, args.block):
            for first, second, cosine, other in blind:
                row = {"image": names[first], "other_image": names[second]}
                row |= {"cosine": round(cosine, 4), "other_cosine": round(other, 4)}
                file.write(json.dumps(row) + "\n")
            count += len(blind)
            advance(done)
    return (
        f"{args.out}: {count:,} pairs of {len(names):,} images with a cosine above {args.above} in "
        f"{args.features} and below {args.below} in {args.other}"
    )


Pair = tuple[int, int, float, float]  # two images, and their two cosines


def pairs(
    both: tuple[nearest.Features, nearest.Features], above: float, below: float, block: int
) -> Iterator[tuple[int, list[Pair]]]:
    """Pairs (i, j), i < j, a block of images i at a time, with the number of images done."""
    total = len(both[0].names)
    block = min(block, total)
    for start in range(0, total, block):
        stop, blind = min(start + block, total), []
        rows = tuple(features.block(start, block) for features in both)
        for first in range(start, total, block):
            columns = tuple(features.block(first, block) for features in both)
            mask = np.asarray(is_blind(rows, columns, (start, first), (above, below)))
            for i, j in np.argwhere(mask):
                cosines = (float(x[i] @ y[j]) for x, y in zip(rows, columns, strict=True))
                blind.append((start + int(i), first + int(j), *cosines))
        yield stop, sorted(blind)


Index = Int[Array, ""] | int
Cosine = Float[Array, ""] | float


@jax.jit
def is_blind(
    rows: tuple[Float[Array, "rows width"], Float[Array, "rows other"]],
    columns: tuple[Float[Array, "columns width"], Float[Array, "columns other"]],
    first: tuple[Index, Index],
    limits: tuple[Cosine, Cosine],
) -> Bool[Array, "rows columns"]:
    """Mask of the pairs.   first: index of the first row, and of the first column.

    limits: --above and --below. A comparison with NaN, of unusable images and behind the end, is
    False.
    """
    highest = jax.lax.Precision.HIGHEST  # as in nearest
    cosines = jnp.matmul(rows[0], columns[0].T, precision=highest)
    other = jnp.matmul(rows[1], columns[1].T, precision=highest)
    row = first[0] + jnp.arange(len(rows[0]))[:, None]
    column = first[1] + jnp.arange(len(columns[0]))[None]
    return (cosines > limits[0]) & (other < limits[1]) & (row < column)


main = command.main(command_line_parser, mine, is_computing=True)

if __name__ == "__main__":
    sys.exit(main())
