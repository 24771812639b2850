"""Weights of the reference libraries give their numbers: every block of both towers, embeddings."""

import re

import jax
import numpy as np
import pytest

from vlc_jax import models, types, weights
from vlc_jax.models import bert, layers, resnet, roberta
from vlc_jax.setup.init_from import architecture
from vlc_jax.weights import files

PROJECTED = types.FeatureRequest("projected")

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5  # float32, absolute, of outputs of order 1

IMAGE = {"width": 32, "mlp_width": 128, "depth": 3, "heads": 4, "image_size": 24, "patch_size": 8}
TEXT = {"width": 24, "mlp_width": 96, "depth": 2, "heads": 2, "context_length": 12,
        "vocab_size": 60, "eos_id": 59}  # fmt: skip
TINY = {"variant": "B/32", "image": {**IMAGE, "projection": 16}, "text": {**TEXT, "projection": 16}}
HF = {
    **TINY,
    "image": {**TINY["image"], "mlp_width": 48},
    "text": {**TINY["text"], "mlp_width": 40},
}
HF_PADDED = {**HF, "text": {**HF["text"], "context_length": 30, "padding_mask": True}}
HF_SIGLIP = {
    "variant": "SigLIP-B/16",
    "image": {**IMAGE, "mlp_width": 48},
    "text": {**TEXT, "mlp_width": 40, "width": 32, "heads": 4, "projection": 32},
}
EVA02 = {
    "variant": "EVA02-B/16",
    "image": {**IMAGE, "mlp_width": 85, "projection": 16, "rope_span": 5},
    "text": {**TEXT, "projection": 16},
}
EVA01 = {
    "variant": "EVA01-g/14",
    "image": {**IMAGE, "mlp_width": 48, "projection": 16},
    "text": {**TEXT, "projection": 16},
}
PE = {
    "variant": "PE-Core-B/16",
    "image": {**IMAGE, "mlp_width": 48, "projection": 16, "rope_span": 5, "pool_heads": 2,
              "pool_mlp_width": 128},
    "text": {**TEXT, "projection": 16},
}  # fmt: skip
PE_G = {**PE, "variant": "PE-Core-bigG/14-448"}
ROBERTA = {
    "variant": "xlm-roberta-B/32",
    "image": TINY["image"],
    "text": {**TEXT, "mlp_width": 40, "eos_id": 2, "projection": 16},
}
RESNET = {
    "variant": "RN50",
    "image": {"width": 8, "stages": (2, 1, 1, 1), "heads": 4, "image_size": 64, "projection": 16},
    "text": {**TEXT, "projection": 16},
}
TWO_BLOCKS = {"image": {"depth": 2}, "text": {"depth": 2}}
SAVED = {"tiny_eva02_larger": EVA02}  # the model of the file, where it is not that of the outputs
CASES = {
    "tiny_quick_gelu": TINY,
    "tiny_gelu": {**TINY, "activation": "gelu"},
    "tiny_clipa": {**TINY, "variant": "OpenVision-B/16"},
    "tiny_pe": PE,
    "tiny_pe_g": PE_G,
    "tiny_resnet": RESNET,
    "tiny_custom_text": {**TINY, "activation": "gelu"},
    "hf_clip_quick_gelu": HF,
    "hf_clip_gelu": {**HF, "activation": "gelu"},
    "hf_metaclip2": {**HF, "activation": "gelu", "text": {**HF["text"], "eos_id": 2}},
    "hf_clip_padding_mask": HF_PADDED,
    "hf_siglip": HF_SIGLIP,
    "hf_siglip2": {**HF_SIGLIP, "text": {**HF_SIGLIP["text"], "vocab_size": 256_000}},
    "tiny_roberta_mean": ROBERTA,
    "tiny_roberta_cls": {
        **ROBERTA,
        "text": {**ROBERTA["text"], "pooling": "cls", "projection_kind": "linear"},
    },
    "tiny_eva01": EVA01,
    "tiny_eva02_e": {**EVA01, "variant": "EVA02-E/14"},
    "tiny_eva02": EVA02,
    "tiny_eva02_larger": {**EVA02, "image": {**EVA02["image"], "image_size": 56}},
    "long_clip": {**TINY, "text": {**TINY["text"], "context_length": 248}},
    "fg_clip_short": {**HF, "text": {**HF["text"], "context_length": 77}},
    "fg_clip_long": {**HF, "text": {**HF["text"], "context_length": 248}},
    # published sizes, two of them in full: more blocks of a size show nothing new
    "B/32": {"variant": "B/32"},
    "L/14": {"variant": "L/14", **TWO_BLOCKS},
    "SigLIP-B/16": {"variant": "SigLIP-B/16", "activation": "gelu", **TWO_BLOCKS},
    "SigLIP2-B/16": {  # open_clip gives only its text tower the activation it was trained with
        "variant": "SigLIP-B/16",
        "vocab_size": 256_000,
        "image": {"activation": "gelu", "depth": 2},
        "text": {"depth": 2},
    },
    "EVA02-B/16": {"variant": "EVA02-B/16"},
    "EVA02-L/14": {"variant": "EVA02-L/14", **TWO_BLOCKS},
}


def numbers(name):
    """(3,) of block_3, (2, 0) of stage_2_block_0."""
    return tuple(map(int, re.findall(r"\d+", name)))


def load(model, path):
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    return weights.load(path, shapes, architecture(model))[0]


def differences(model, params, io):
    """Name -> largest absolute difference to the reference."""

    def run(params, image, text):
        def both(module, image, text):
            whole = module.image(image, PROJECTED), module.text(text, PROJECTED)
            return whole, module.encode_image(image).pooled, module.encode_text(text).pooled

        (whole, image_embeds, text_embeds), state = model.apply(
            {"params": params},
            image,
            text,
            method=both,
            capture_intermediates=lambda module, _: isinstance(
                module, layers.Block | bert.Block | resnet.Bottleneck
            ),
        )
        blocks = {
            f"{part}_{index}": blocks[name]["__call__"][0]
            for part, tower in state["intermediates"].items()
            for blocks in [tower.get("encoder", tower)]
            for index, name in enumerate(sorted(blocks, key=numbers))
        }
        pooled = {"image_embeds": whole[0].pooled, "text_embeds": whole[1].pooled}
        return blocks, pooled, {"image_embeds": image_embeds, "text_embeds": text_embeds}

    found = jax.jit(run)(params, io["image"], io["text"])
    blocks, pooled, short = jax.device_get(found)
    assert {*blocks, *pooled, "image", "text"} == set(io.files)
    is_roberta = isinstance(model.text, roberta.RobertaTower)

    def compared(name, x):  # RoBERTa's padding has no positions of its own, and no token sees it
        return x[io["text"] != 1] if is_roberta and re.match(r"text_\d", name) else x

    found = {
        name: np.abs(compared(name, x) - compared(name, io[name])).max()
        for name, x in {**blocks, **pooled}.items()
    }
    return found | {f"{name} alone": np.abs(x - io[name]).max() for name, x in short.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_block_is_that_of_the_reference(reference, case):
    folder, model = reference(case), models.build("clip", **CASES[case])
    files = sorted({*folder.glob("weights.*"), *([folder] * (folder / "config.json").exists())})
    assert files
    for path in files:
        with np.load(folder / "io.npz") as io:
            found = differences(model, load(model, path), io)
        wrong = {name: value for name, value in found.items() if not value <= TOLERANCE}
        assert not wrong, path


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("tiny", "hf"))])
def test_a_file_read_and_written_again_has_the_same_bytes(reference, case):
    model, folder = models.build("clip", **{**CASES[case], **SAVED.get(case, {})}), reference(case)
    path = folder / ("model" if case.startswith("hf") else "weights")
    theirs = files.read(path.with_suffix(".safetensors"))
    params = load(model, path.with_suffix(".safetensors"))
    ours = weights.save(params, weights.detect(theirs), architecture(model))
    # batches that torch counted in training, which it fills in if a file has none
    theirs = {k: x for k, x in theirs.items() if not k.endswith("num_batches_tracked")}
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].shape == array.shape
        assert ours[name].dtype == array.dtype
        assert ours[name].tobytes() == array.tobytes(), name
