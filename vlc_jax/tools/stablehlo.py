"""Both towers as StableHLO programs (jax.export), parameters included, for `tools.export`.

    from jax import export
    tower = export.deserialize(bytearray(open("image.stablehlo", "rb").read()))
    embeddings = tower.call(pixels)  # uint8 (n, size, size, 3) -> float32 (n, embed)

n is any number of rows: that dimension is symbolic. stablehlo.json describes both programs, the
pixels and the token ids that they take, and the logit scale.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.export
import numpy as np

from vlc_jax.devices import runtime
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.models.tower import image_shape
from vlc_jax.setup import model as model_setup
from vlc_jax.setup.exported_config import PROGRAMS
from vlc_jax.types.setup import Setup
from vlc_jax.weights import flatten

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
ALL = ("cpu", "cuda", "tpu")
# of a buffer in a serialised program, by its format (flatbuffers)
MAX_BYTES = 2**31
# of embeddings, on the platform of the export; compilers round in another order
TOLERANCE = 1e-5
ROWS = 3
RESIZE = {  # crop of evaluation -> what it does, for whoever writes it in another language
    "centre": "resize the short side to size, crop the centre; half a pixel is rounded down",
    "centre_torchvision": "the same; half a pixel is rounded to an even number",
    "centre_margin": "resize the short side to 8/7 of size, crop the centre",
    "none": "resize to size x size, whatever the aspect ratio",
    "pad": "pad to a square with the mean colour, resize to size x size",
    "naflex": "to a mosaic of patches, as vlc_jax/input_pipeline/images/naflex.py",
    "native": "the same, of the size by vlc_jax/input_pipeline/images/native.py",
}


def write(
    folder: Path,
    setup: Setup,
    params: Any,
    platforms: Sequence[str],
    tokenizer_options: Mapping[str, Any],
) -> None:
    """Writes image.stablehlo, text.stablehlo and stablehlo.json.

    Raises UsageError without the package flatbuffers, WeightsError for a tower above 2 GB.
    """
    try:
        import flatbuffers  # noqa: F401, jax.export imports it only after a long trace
    except ModuleNotFoundError:
        raise UsageError(
            "jax.export needs the package flatbuffers: pip install 'vlc_jax[stablehlo]'"
        ) from None
    towers = _towers(setup, params)
    files = {}
    for name, (tower, example) in towers.items():
        size = sum(x.nbytes for x in flatten(params[name]).values())
        if size >= MAX_BYTES:
            raise WeightsError(
                f"the {name} tower has {size / 1e9:.1f} GB, and a serialised program at most "
                f"{MAX_BYTES / 1e9:.1f}: use the model from its workdir, or --to hf"
            )
        (rows,) = jax.export.symbolic_shape("rows")
        shape = jax.ShapeDtypeStruct((rows, *example.shape[1:]), example.dtype)
        exported = jax.export.export(tower, platforms=platforms)(shape)
        file = folder / f"{name}.stablehlo"
        file.write_bytes(exported.serialize())
        sides = {"input": exported.in_avals[0], "output": exported.out_avals[0]}
        shapes = {
            side: {"dtype": str(x.dtype), "shape": [*map(_size, x.shape)]}
            for side, x in sides.items()
        }
        files[name] = {"file": file.name, **shapes}
    bias = params.get("logit_bias")
    content = {
        **files,
        "platforms": list(platforms),
        "jax": jax.__version__,
        "calling_convention": jax.export.maximum_supported_calling_convention_version,
        "preprocessing": _preprocessing(setup),
        "tokenizer": _tokenizer(setup, tokenizer_options),
        "scores": "image @ text.T; logits = logit_scale * scores + logit_bias",
        "logit_scale": float(np.exp(params["logit_scale"])),
        "logit_bias": None if bias is None else float(bias),
    }
    any_path.write_json(folder / PROGRAMS, content, indent=2)


def check(folder: Path, setup: Setup, params: Any) -> str:
    """Reads both programs back and compares their embeddings; returns the result as a sentence.

    Raises WeightsError if they differ by more than 1e-5.
    """
    largest, here = 0.0, runtime.platform_name().replace("gpu", "cuda")
    for name, (tower, example) in _towers(setup, params).items():
        program = jax.export.deserialize(bytearray((folder / f"{name}.stablehlo").read_bytes()))
        if here not in program.platforms:
            return f"not checked: this computer has {here}, the programs {program.platforms}"
        difference = np.abs(np.asarray(program.call(example)) - np.asarray(tower(example))).max()
        if not difference <= TOLERANCE:
            raise WeightsError(f"{name}.stablehlo computes other embeddings: by {difference:.1e}")
        largest = max(largest, float(difference))
    return f"checked: read back, the programs give the embeddings, to {largest:.1e}"


def _towers(setup: Setup, params: Any) -> dict[str, tuple[Any, np.ndarray]]:
    """Tower -> its function of pixels or token ids, with parameters as constants, and an input."""
    # cuDNN's attention is of one platform
    model = model_setup.with_attention(setup.model, "xla", "cpu")
    variables = {"params": jax.tree.map(np.asarray, params)}

    def function(method: Any) -> Any:
        return jax.jit(lambda rows: nn.apply(method, model)(variables, rows).pooled)

    rng, shape = np.random.default_rng(0), (ROWS, *image_shape(model.image))
    pixels = rng.integers(0, 256, shape, np.uint8)
    ids = setup.tokenizer(["a photo of a cat", "the horse eats the grass", ""][:ROWS])
    return {
        "image": (function(lambda m, x: m.encode_image(setup.normalise(x))), pixels),
        "text": (function(lambda m, x: m.encode_text(x)), ids),
    }


def _preprocessing(setup: Setup) -> dict[str, Any]:
    transform = setup.evaluation.transform
    return {
        "size": transform.size,
        "crop": transform.crop,
        "resize": RESIZE[transform.crop],
        "interpolation": f"{transform.interpolation}, antialiased, as Pillow's",
        "pixels": "uint8 RGB from 0 to 255, rows first; the program normalises them",
    }


def _tokenizer(setup: Setup, options: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = setup.tokenizer
    return {
        "name": setup.config["text"]["tokenizer"],
        "options": {key: value for key, value in options.items() if key != "path"},
        "context_length": tokenizer.context_length,
        "vocab_size": tokenizer.vocab_size,
        "start_id": getattr(tokenizer, "sot_id", None),
        "end_id": tokenizer.eos_id,
        "pad_id": tokenizer.pad_id,
        "row": "start (if there is one), tokens cut to the context length, end, padding",
    }


def _size(dimension: Any) -> int | str:
    """A dimension; "rows" for the symbolic one."""
    return dimension if isinstance(dimension, int) else str(dimension)
