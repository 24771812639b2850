"""The answer of a generative model to a question about an image:

  vlc-jax generate --model llava-1.5-7b-hf --image a.jpg --prompt "What is it doing?"
  vlc-jax generate --model runs/captioner --image a.jpg

MODEL: LLaVA's weights, or the workdir of a captioner. Without --prompt it describes the image;
--m3id gives the image more weight at uncertain and at later words (docs/mllm.md). The answer is
streamed. Exit codes are those of vlc_jax.main.
"""

import argparse
import sys

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.tools import command


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("generate", __doc__)
    parser.add_argument("--image", required=True, metavar="FILE")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="a question about the image")
    parser.add_argument("--max_tokens", type=command_line.positive, default=128, metavar="N")
    parser.add_argument("--m3id", action="store_true", help="decode by M3ID")
    parser.add_argument("--first_step", type=int, default=1, help="of M3ID: t of the first token")
    command.add_model(parser)
    return parser


def generate(args: argparse.Namespace) -> str:
    """Prints the answer; returns "", whose line end is that of the answer."""
    pieces = command.model(args).stream(
        args.image,
        args.prompt,
        kind="m3id" if args.m3id else "greedy",
        max_tokens=args.max_tokens,
        first_step=args.first_step,
    )
    for number, piece in enumerate(pieces):
        print(piece if number else piece.lstrip(), end="", flush=True)
    return ""


main = command.main(_parser, generate)

if __name__ == "__main__":
    sys.exit(main())
