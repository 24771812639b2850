"""Hard positives, dense captions and units, written by a language model in this process:

  vlc-jax write_texts replace captions_train2017.json \\
      --decoder Llama-2-7b-chat-hf --out hp/replace

What vlc-jax write_hard_texts has written by an endpoint. The prompt is a plain text
that the model goes on with, greedily, without a template of chats, as most of the papers ask.
DECODER is a folder of Hugging Face: Llama, Mistral, Phi-3 or Gemma, config.json, weights and
tokenizer.
"""

import argparse
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vlc_jax.devices import runtime
from vlc_jax.encode import complete
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.commands import addresses, command_line, job_options
from vlc_jax.input_pipeline.hard_texts.llm import job
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import lm
from vlc_jax.setup.data import usage_errors
from vlc_jax.tools import command
from vlc_jax.weights import files, llava, lm_config

DTYPES = ("auto", "float32", "bfloat16")


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = _parser()
    args = parser.parse_args(arguments)
    command.run([parser.prog], lambda: write(args))


def write(args: argparse.Namespace) -> str:
    """Does what the command line says, or goes on with it; a sentence about the files."""
    fields: dict[str, Any] = {"stop": list(PRESETS[args.preset].stop), "decoding": "greedy"}
    with usage_errors():
        asked = job.make(args, Path(args.decoder).name, "text", fields)
        if args.dry_run:
            return job.dry_run(asked)
        runtime.connect(None, None, None)
        model = load(args.decoder, args.dtype)
        asked = asked._replace(request={**asked.request, "model": model.name})
        return job.run(asked, complete.completing(model, args.batch_size), args.decoder)


def load(folder: str | Path, dtype: str = "auto") -> complete.LanguageModel:
    """The language model in a folder, named by the folder and a hash of its parameters.

    dtype: of DTYPES, of parameters and activations; auto: float32 on a CPU, else bfloat16.
    Raises WeightsError for files that do not fit, and UsageError for those of a model with images.
    """
    folder = Path(folder)
    sizes = llava.read_sizes(folder)
    if "image" in sizes:
        raise UsageError(f"{folder} holds a model of images and texts; name a language model")
    kind = runtime.matrix_dtype(runtime.platform_name()) if dtype == "auto" else dtype
    decoder = lm.from_sizes(sizes["lm"], dtype=jnp.dtype(kind), param_dtype=jnp.dtype(kind))
    shapes = {"lm": jax.eval_shape(partial(lm.init, decoder), jax.random.key(0))}
    digest = hashlib.sha256()

    def put(path: str, array: np.ndarray) -> jax.Array:
        digest.update(f"{path} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8))
        return jnp.asarray(array)

    params = llava.load(folder, sizes, shapes, put=put, dtype=jnp.dtype(kind))["lm"]
    config, default = files.read_json(folder / "config.json"), lm_config.FAMILIES[sizes["family"]]
    return complete.LanguageModel(
        name=f"{folder.resolve().name}@{digest.hexdigest()[:12]}",
        decoder=decoder,
        params=params,
        tokenizer=DecoderTokenizer(folder),
        ends=_ends(folder, config),
        positions=config.get("max_position_embeddings") or default["max_position_embeddings"],
    )


def _ends(folder: Path, config: dict[str, Any]) -> list[int]:
    """Ids that end an answer. Raises WeightsError where no file says them."""
    path = folder / "generation_config.json"
    found = files.read_json(path).get("eos_token_id") if path.exists() else None
    found = config.get("eos_token_id") if found is None else found
    if found is None:
        raise WeightsError(f"{folder}: neither config.json nor {path.name} has eos_token_id")
    return found if isinstance(found, list) else [found]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlc-jax write_texts",
        description=job_options.description(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job_options.add_options(parser)
    parser.add_argument("--decoder", required=True, help="folder of the language model")
    parser.add_argument("--batch-size", type=command_line.positive, default=32, help="prompts")
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    main()
