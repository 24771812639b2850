"""Scores of an exported folder by the library it was written for; run by `tools.verify_export`.

  python vlc_jax/tools/load_exported.py hf|open_clip|peft FOLDER INPUTS.npz OUTPUTS.npz

A script for a Python environment with the library, with or without JAX. Inputs: "image" (n, side,
side, 3) normalised, "text" (n, length) ids; of NaFlex also "patches" (n, patches, pixels) and
"grids" (n, 2). Outputs: "image" and "text", embeddings of unit length, and "scale". Exit code 4:
the library is not installed.
"""

import enum
import importlib.machinery
import importlib.util
import json
import sys
import types
from pathlib import Path

NOT_INSTALLED = 4


def hugging_face(folder, image, text):
    import transformers

    model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return _embeddings(model, image, text)


def peft(folder, image, text):
    import transformers
    from peft import PeftModel

    config = json.loads((Path(folder) / "adapter_config.json").read_text())
    base = transformers.AutoModel.from_pretrained(config["base_model_name_or_path"])
    return _embeddings(PeftModel.from_pretrained(base, folder), image, text)


def open_clip(folder, image, text):
    config = json.loads((Path(folder) / "open_clip_config.json").read_text())
    if "hf_model_name" in config["model_cfg"]["text_cfg"]:
        know_roberta(Path(folder) / "open_clip_model.safetensors")
    if importlib.util.find_spec("torchvision") is None:
        without_torchvision()
    import open_clip

    model = open_clip.create_model(f"local-dir:{folder}").eval()
    embeddings = (
        model.encode_image(image["pixel_values"], normalize=True),
        model.encode_text(text, normalize=True),
    )
    return *embeddings, model.logit_scale.exp()


def know_roberta(weights):
    """open_clip asks the hub for the sizes of a RoBERTa; here they are read from the weights."""
    import transformers

    # imported here, since transformers does not take the modules of `without_torchvision`
    assert transformers.XLMRobertaModel
    with open(weights, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    prefix = "text.transformer."
    shapes = {
        name.removeprefix(prefix): array["shape"]
        for name, array in header.items()
        if name.startswith(prefix)
    }
    vocabulary, width = shapes["embeddings.word_embeddings.weight"]
    config = transformers.XLMRobertaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=sum(name.endswith("intermediate.dense.bias") for name in shapes),
        num_attention_heads=width // 64,  # as all published ones
        intermediate_size=shapes["encoder.layer.0.intermediate.dense.bias"][0],
        max_position_embeddings=shapes["embeddings.position_embeddings.weight"][0],
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    transformers.AutoConfig.from_pretrained = lambda *_, **__: config


def without_torchvision():
    """Replaces torchvision by empty modules: its wheels do not load with every build of torch.

    open_clip and timm import it for image transforms, which arrays do not need.
    """

    class Anything(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__init__": lambda self, *_, **__: None})

    names = (
        "torchvision",
        "torchvision.transforms",
        "torchvision.transforms.functional",
        "torchvision.ops",
        "torchvision.ops.misc",
        "torchvision.models",
        "torchvision.models.feature_extraction",
        "torchvision.datasets",
        "torchvision.io",
    )
    for name in names:  # parents first, since a child is set on its parent
        module = Anything(name)
        module.__path__, module.__version__ = [], "0"
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    modes = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
    mode = enum.Enum("InterpolationMode", {name.upper(): name for name in modes})
    for name in ("torchvision.transforms", "torchvision.transforms.functional"):
        sys.modules[name].InterpolationMode = mode


def naflex(patches, grids):
    """The images of a Siglip2Model."""
    import torch

    mask = torch.arange(patches.shape[1])[None] < grids.prod(1, keepdim=True)
    return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": grids}


def _embeddings(model, image, text):
    outputs = model.eval()(input_ids=text, **image)
    parts = (
        part / part.norm(dim=-1, keepdim=True)
        for part in (outputs.image_embeds, outputs.text_embeds)
    )
    return *parts, model.logit_scale.exp()


def main():
    target, folder, inputs, outputs = sys.argv[1:]
    try:
        import numpy as np
        import torch

        load = {"hf": hugging_face, "open_clip": open_clip, "peft": peft}[target]
        with np.load(inputs) as arrays:
            image = {"pixel_values": torch.from_numpy(arrays["image"]).permute(0, 3, 1, 2)}
            if "grids" in arrays:
                image = naflex(*(torch.from_numpy(arrays[key]) for key in ("patches", "grids")))
            text = torch.from_numpy(arrays["text"].astype(np.int64))
        # torch 2.13: the first sines of a process can be precise to only four digits, and rotary
        # tables need sines
        torch.ones(1 << 20).sin()
        with torch.no_grad():
            results = [np.asarray(result) for result in load(folder, image, text)]
    except ModuleNotFoundError as error:
        # no name: raised by a library, whose own message names the missing package
        missing = f"{error.name} is not installed" if error.name else str(error)
        print(missing, file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    np.savez(outputs, **dict(zip(("image", "text", "scale"), results, strict=True)))


if __name__ == "__main__":
    main()
