"""Scores of images and texts by a trained model:

  vlc-jax score --model runs/clip --images a.jpg b.jpg --texts "red circle" "red square"

MODEL: the workdir of a run, an exported folder, or published weights (docs/weights.md). Prints a
table, images by texts, with the best text of each image marked; --json prints the numbers instead.
Exit codes are those of vlc_jax.main.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.tools import command


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("score", __doc__)
    parser.add_argument("--images", required=True, nargs="+", metavar="FILE")
    parser.add_argument("--texts", required=True, nargs="+", metavar="TEXT")
    parser.add_argument(
        "--negation", action="store_true", help="take what a text negates out of it"
    )
    parser.add_argument(
        "--segments",
        default="",
        choices=("patches", "crops"),
        help="compare each phrase of a text with its best part of the image",
    )
    parser.add_argument("--json", action="store_true", help="numbers instead of a table")
    command.add_model(parser)
    return parser


def score(args: argparse.Namespace) -> str:
    """The table, or JSON."""
    model = command.model(args)
    unknown, eos = model.tokenizer.unk_id, model.tokenizer.eos_id
    for text in args.texts if unknown not in (None, eos) else ():
        if unknown in model.tokenizer([text]):
            print(f"{text!r} has words that this model does not know", file=sys.stderr)
    how = {"negation": args.negation, "segments": args.segments}
    scores = model.score(args.images, args.texts, **how)
    if args.json:
        result = {"images": args.images, "texts": args.texts, "scores": scores.tolist()}
        return json.dumps(result, ensure_ascii=False)
    return table(args.images, args.texts, scores)


def table(images: Sequence[str], texts: Sequence[str], scores: np.ndarray) -> str:
    """A printed table: the numbered texts, then a row of scores for each image."""
    width = max(len(image) for image in images)
    lines = [f"text {k + 1}: {text}" for k, text in enumerate(texts)]
    lines.append(" " * width + "".join(f"{f'text {k + 1}':>10}" for k in range(len(texts))))
    for image, row in zip(images, scores, strict=True):
        # tied best scores are not marked
        is_best = (row == row.max()) & (np.sum(row == row.max()) == 1)
        cells = (
            f"{value:.4f}{'*' if best else ' '}" for value, best in zip(row, is_best, strict=True)
        )
        lines.append(f"{image:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    return "\n".join([*lines, "* the best text of an image, if it has more than one"])


main = command.main(_parser, score)

if __name__ == "__main__":
    sys.exit(main())
