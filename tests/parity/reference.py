"""Runs in an environment with torch: writes random weights of the reference libraries, and outputs.

  python tests/parity/reference.py OUT CASE [CASE ...]

OUT/CASE/ gets the weights as the library writes them and io.npz: inputs, embeddings of unit length,
and what every block of both towers gives.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import torch

from vlc_jax.tools.load_exported import without_torchvision

TINY = {"vision": {"width": 32, "layers": 3, "image_size": 24, "patch_size": 8, "head_width": 8},
        "text": {"width": 24, "layers": 2, "heads": 2, "context_length": 12, "vocab_size": 60},
        }  # fmt: skip

TINY_EVA = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4,
            "qkv_fused": False, "mlp_ratio": 4 * 2 / 3, "swiglu_mlp": True, "scale_mlp": True,
            "scale_attn_inner": True, "use_rot_pos_emb": True, "ref_feat_shape": (5, 5),
            }  # fmt: skip
TINY_PE = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4,
           "attn_type": "rope", "use_pre_transformer_norm": True, "use_rot_pos_emb": True,
           "ref_feat_shape": (5, 5), "rope_grid_offset": 1.0, "rope_grid_indexing": "xy",
           "attn_pool_num_heads": 2, "attn_pool_mlp_ratio": 4.0, "mlp_ratio": 1.5,
           "norm_layer": functools.partial(torch.nn.LayerNorm, eps=1e-5),
           }  # fmt: skip
TINY_EVA01 = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4,
              "mlp_ratio": 1.5}  # fmt: skip


def first_sine() -> None:
    """torch 2.13 with MKL: of the first sines of a process, those that the second thread computes
    sometimes have four digits only (4 of 400 processes), and rotary tables are such sines."""
    torch.ones(1 << 20).sin()


def shaken(model: torch.nn.Module, noise: float = 0.01) -> torch.nn.Module:
    """No parameter keeps a value (0, 1) that would hide a missing or exchanged one; matrices, which
    are random already, are shaken by `noise`."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "logit" not in name:
                parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim < 2 else noise))
        for name, buffer in model.named_buffers():
            if "running" in name:  # the mean is 0, the variance 1
                buffer.add_(torch.rand_like(buffer) - 0.5)
    return model.eval()


def recorded(blocks, store: dict, part: str) -> None:
    """Every block's output goes to store[part_i]."""
    for index, block in enumerate(blocks):

        def keep(module, inputs, output, index=index):
            output = output[0] if isinstance(output, tuple) else output
            output = output.permute(0, 2, 3, 1) if output.ndim == 4 else output
            store[f"{part}_{index}"] = output.detach().numpy()

        block.register_forward_hook(keep)


def inputs(size: int, length: int, vocabulary: int, eos: int | None, pad: int = 0):
    """Two images, and two texts of different lengths, the second one full."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, size, size, generator=generator)
    text = torch.randint(3, vocabulary - 2, (2, length), generator=generator)
    if eos is not None:
        text[0, 5], text[0, 6:], text[1, -1] = eos, pad, eos
    return image, text


def save_io(folder: Path, image, text, image_embeds, text_embeds, store: dict) -> None:
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (image_embeds, text_embeds)]
    np.savez(
        folder / "io.npz",
        image=image.permute(0, 2, 3, 1).numpy(),
        text=text.numpy().astype(np.int32),
        image_embeds=unit[0].numpy(),
        text_embeds=unit[1].numpy(),
        **store,
    )


def open_clip_case(
    folder: Path,
    model,
    vision_blocks,
    *,
    noise: float = 0.01,
    image_size: int | None = None,
    pickled: bool = True,
) -> None:
    """With `image_size` the weights are of the model as it is, the outputs of one resized to it."""
    from safetensors.torch import save_file

    model = shaken(model, noise)
    state = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
    if pickled:
        torch.save(state, folder / "weights.pt")
    save_file(state, folder / "weights.safetensors")
    text_tower = getattr(model, "text", model)
    if image_size:
        model.visual.set_input_size(image_size)
    size = model.visual.image_size
    size = size if isinstance(size, int) else size[0]
    vocabulary = text_tower.vocab_size
    image, text = inputs(size, text_tower.context_length, vocabulary, vocabulary - 1)
    store: dict = {}
    recorded(vision_blocks, store, "image")
    recorded(text_tower.transformer.resblocks, store, "text")
    with torch.no_grad():
        embeds = model.encode_image(image), model.encode_text(text)
    save_io(folder, image, text, *embeds, store)


def tiny_open_clip(folder: Path, quick_gelu: bool, custom_text: bool) -> None:
    without_torchvision()
    import open_clip

    kind = open_clip.CustomTextCLIP if custom_text else open_clip.CLIP
    torch.manual_seed(0)
    model = kind(16, TINY["vision"], TINY["text"], quick_gelu=quick_gelu)
    open_clip_case(folder, model, model.visual.transformer.resblocks)
    if quick_gelu:  # OpenAI's files are TorchScript
        clean = kind(16, TINY["vision"], TINY["text"], quick_gelu=True).eval()
        clean.load_state_dict(model.state_dict())
        example = inputs(24, 12, 60, 59)
        traced = torch.jit.trace(clean, example, strict=False, check_trace=False)
        torch.jit.save(traced, folder / "weights.traced.pt")
        torch.jit.save(torch.jit.script(clean), folder / "weights.scripted.pt")


def tiny_clipa(folder: Path) -> None:
    """CLIPA and OpenVision: patches are pooled before the last norm, texts at the last token."""
    without_torchvision()
    import open_clip

    torch.manual_seed(0)
    vision = {**TINY["vision"], "no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}
    text = {**TINY["text"], "no_causal_mask": True, "pool_type": "last"}
    text["act_kwargs"] = {"approximate": "tanh"}
    norm = {"norm_kwargs": {"eps": 1e-6}}
    model = open_clip.CLIP(16, vision | norm, text | norm)
    # a noise that lets the pooled features of two images differ
    open_clip_case(folder, model, model.visual.transformer.resblocks, noise=0.05)


def tiny_roberta(folder: Path, **text) -> None:
    """open_clip takes the sizes of these texts from transformers' published config."""
    without_torchvision()
    import open_clip
    import transformers
    from open_clip import hf_model
    from safetensors.torch import save_file

    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 40, "vocab_size": 60, "max_position_embeddings": 514,
             "layer_norm_eps": 1e-5, "type_vocab_size": 1}  # fmt: skip
    hf_model.AutoConfig.from_pretrained = lambda name: transformers.XLMRobertaConfig(**sizes)
    torch.manual_seed(0)
    text = {"hf_model_name": "xlm-roberta-base", "hf_model_pretrained": False, **text}
    model = shaken(open_clip.CustomTextCLIP(16, TINY["vision"], text), 0.2)
    save_file(model.state_dict(), folder / "weights.safetensors")
    image, ids = inputs(24, 12, 60, 2, pad=1)
    store: dict = {}
    recorded(model.visual.transformer.resblocks, store, "image")
    recorded(model.text.transformer.encoder.layer, store, "text")
    with torch.no_grad():
        embeds = model.encode_image(image), model.encode_text(ids)
    save_io(folder, image, ids, *embeds, store)


def tiny_resnet(folder: Path) -> None:
    without_torchvision()
    import open_clip

    vision = {"layers": [2, 1, 1, 1], "width": 8, "image_size": 64, "head_width": 64}
    torch.manual_seed(0)
    model = open_clip.CLIP(16, vision, TINY["text"], quick_gelu=True)
    image = model.visual
    stages = (image.layer1, image.layer2, image.layer3, image.layer4)
    # a noise that lets the small initial matrices of the pooling tell features apart
    open_clip_case(folder, model, [block for stage in stages for block in stage], noise=0.05)


def real_open_clip(
    folder: Path, name: str, *, noise: float = 0.01, depth: int | None = None
) -> None:
    """A model of its published sizes, or the first `depth` blocks of both its towers."""
    without_torchvision()
    first_sine()
    import open_clip

    torch.manual_seed(0)
    model = open_clip.create_model(name, pretrained=None)
    image, text = model.visual, getattr(model, "text", model).transformer
    if hasattr(image, "trunk"):
        blocks = image.trunk.blocks = image.trunk.blocks[:depth]
    else:
        blocks = image.transformer.resblocks = image.transformer.resblocks[:depth]
    text.resblocks = text.resblocks[:depth]
    open_clip_case(folder, model, blocks, noise=noise, pickled=False)


def spread_attention(model) -> None:
    """timm starts all matrices so small that attention is even, and where a token is no matter."""
    torch.manual_seed(2)
    with torch.no_grad():
        for block in model.visual.trunk.blocks:
            attention = block.attn
            fused = attention.qkv
            for projection in (fused,) if fused else (attention.q_proj, attention.k_proj):
                torch.nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
        if pool := getattr(model.visual.trunk, "attn_pool", None):
            for weight in (pool.latent, pool.q.weight, pool.kv.weight, pool.proj.weight):
                torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)


def tiny_eva02(folder: Path, image_size: int | None = None) -> None:
    tiny_eva(folder, TINY_EVA, image_size)


def tiny_eva(folder: Path, sizes: dict, image_size: int | None = None, pool: str = "token") -> None:
    without_torchvision()
    first_sine()
    import open_clip
    import timm
    from timm.models.eva import Eva

    @timm.models.register_model
    def tiny(pretrained, num_classes, global_pool, **_):
        return Eva(**sizes, num_classes=num_classes, global_pool=global_pool)

    vision = {"image_size": 24, "timm_model_name": "tiny", "timm_pool": pool, "timm_proj": None}
    torch.manual_seed(0)
    model = open_clip.CustomTextCLIP(16, vision, TINY["text"])
    spread_attention(model)
    open_clip_case(folder, model, model.visual.trunk.blocks, image_size=image_size)


def tiny_hugging_face(
    kind: str, activation: str = "gelu_pytorch_tanh", vocabulary: int = 60, length: int = 12
) -> torch.nn.Module:
    import transformers

    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
              "num_attention_heads": 4, "image_size": 24, "patch_size": 8,
              "hidden_act": activation}  # fmt: skip
    text = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": length, "vocab_size": vocabulary,
            "hidden_act": activation}  # fmt: skip
    ends = {"bos_token_id": 58, "eos_token_id": 59, "pad_token_id": 1}
    torch.manual_seed(0)
    if kind == "metaclip_2":  # its end token has not the largest id
        ends["eos_token_id"] = 2
    if kind in ("clip", "metaclip_2"):
        name = {"clip": "CLIP", "metaclip_2": "MetaClip2"}[kind]
        config = getattr(transformers, f"{name}Config")(
            text_config=text | ends, vision_config=vision, projection_dim=16
        )
        return getattr(transformers, f"{name}Model")(config)
    text = text | {"hidden_size": 32, "num_attention_heads": 4, "projection_size": 32}
    config = transformers.SiglipConfig(text_config=text | ends, vision_config=vision)
    return transformers.SiglipModel(config)


def hugging_face(
    folder: Path, kind: str, activation: str = "gelu_pytorch_tanh", vocabulary: int = 60
) -> None:
    model = shaken(tiny_hugging_face(kind, activation, vocabulary))
    model.save_pretrained(folder)
    record_hugging_face(
        folder, model, *inputs(24, 12, vocabulary, 2 if kind == "metaclip_2" else 59)
    )


def record_hugging_face(folder: Path, model: torch.nn.Module, image, ids) -> None:
    """Writes io.npz of one of transformers' models."""
    store: dict = {}
    recorded(model.vision_model.encoder.layers, store, "image")
    recorded(model.text_model.encoder.layers, store, "text")
    with torch.no_grad():
        outputs = model(input_ids=ids, pixel_values=image)
    save_io(folder, image, ids, outputs.image_embeds, outputs.text_embeds, store)


def with_attention_mask(folder: Path) -> None:
    """Texts of 5 to 30 tokens, and the attention mask of their padding, as DCSM's authors call the
    text model."""
    model = shaken(tiny_hugging_face("clip", "quick_gelu", length=30))
    model.save_pretrained(folder)
    image, _ = inputs(24, 30, 60, None)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 58, (26, 30), generator=generator)
    for i, row in enumerate(ids):
        row[4 + i :] = 59  # Hugging Face's CLIP pads with the end token
    mask = torch.arange(30)[None] < torch.arange(5, 31)[:, None]
    store: dict = {}
    recorded(model.vision_model.encoder.layers, store, "image")
    recorded(model.text_model.encoder.layers, store, "text")
    with torch.no_grad():
        outputs = model(input_ids=ids, pixel_values=image, attention_mask=mask.long())
    save_io(folder, image, ids, outputs.image_embeds, outputs.text_embeds, store)


def two_tables(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Long-CLIP's tables: its model reads 20 rows of the first one, the others of the second."""
    is_first = torch.arange(len(positions))[:, None] < 20
    noise = torch.randn_like(positions)
    return torch.where(is_first, positions, noise), torch.where(is_first, noise, positions)


def long_clip(folder: Path) -> None:
    """open_clip's CLIP of 248 tokens, its positions in the two tables of Long-CLIP's files."""
    without_torchvision()
    import open_clip

    torch.manual_seed(0)
    text = {**TINY["text"], "context_length": 248}
    model = open_clip.CLIP(16, TINY["vision"], text, quick_gelu=True)
    open_clip_case(folder, model, model.visual.transformer.resblocks)
    (folder / "weights.safetensors").unlink()
    state = torch.load(folder / "weights.pt")
    names = "positional_embedding", "positional_embedding_res"
    state |= dict(zip(names, two_tables(state[names[0]]), strict=True))
    torch.save(state, folder / "weights.pt")


def fg_clip(folder: Path, length: int) -> None:
    """transformers' CLIP of `length` tokens in a file with FG-CLIP's two ways of reading texts."""
    from safetensors.torch import save_file

    of_length = {n: shaken(tiny_hugging_face("clip", "quick_gelu", length=n)) for n in (77, 248)}
    model, positions = of_length[length], "text_model.embeddings.position_embedding"
    state, long = model.state_dict(), of_length[248].state_dict()
    for name in (f"{positions}.weight", "text_projection.weight"):
        state[name] = of_length[77].state_dict()[name]
    state["text_filip_projection.weight"] = long["text_projection.weight"]
    tables = two_tables(long[f"{positions}.weight"])
    state |= {f"{positions}_{n}.weight": x for n, x in zip(("ori", "res"), tables, strict=True)}
    assert not torch.equal(state["text_projection.weight"], state["text_filip_projection.weight"])
    save_file(
        {name: x.contiguous().clone() for name, x in state.items()}, folder / "weights.safetensors"
    )
    record_hugging_face(folder, model, *inputs(24, length, 60, 59))


CASES = {
    "tiny_quick_gelu": lambda folder: tiny_open_clip(folder, True, False),
    "tiny_gelu": lambda folder: tiny_open_clip(folder, False, False),
    "tiny_clipa": tiny_clipa,
    "tiny_pe": lambda folder: tiny_eva(folder, TINY_PE, pool="map"),
    "tiny_pe_g": lambda folder: tiny_eva(
        folder, {**TINY_PE, "class_token": False, "rope_grid_offset": 0.0}, pool="map"
    ),
    "tiny_resnet": tiny_resnet,
    "tiny_custom_text": lambda folder: tiny_open_clip(folder, False, True),
    "tiny_roberta_mean": tiny_roberta,
    "tiny_roberta_cls": lambda folder: tiny_roberta(
        folder, hf_pooler_type="cls_pooler", hf_proj_type="linear"
    ),
    "hf_clip_quick_gelu": lambda folder: hugging_face(folder, "clip", "quick_gelu"),
    "hf_clip_gelu": lambda folder: hugging_face(folder, "clip", "gelu"),
    "hf_metaclip2": lambda folder: hugging_face(folder, "metaclip_2", "gelu"),
    "hf_clip_padding_mask": with_attention_mask,
    "hf_siglip": lambda folder: hugging_face(folder, "siglip"),
    "hf_siglip2": lambda folder: hugging_face(folder, "siglip", vocabulary=256_000),
    "long_clip": long_clip,
    "fg_clip_short": lambda folder: fg_clip(folder, 77),
    "fg_clip_long": lambda folder: fg_clip(folder, 248),
    "B/32": lambda folder: real_open_clip(folder, "ViT-B-32-quickgelu"),
    "L/14": lambda folder: real_open_clip(folder, "ViT-L-14-quickgelu", depth=2),
    "tiny_eva01": lambda folder: tiny_eva(folder, TINY_EVA01),
    "tiny_eva02_e": lambda folder: tiny_eva(folder, {**TINY_EVA01, "use_post_norm": True}),
    "tiny_eva02": tiny_eva02,
    "tiny_eva02_larger": lambda folder: tiny_eva02(folder, 56),
    # with a noise of 0.01 the last blocks give values of 17, and float32 alone is wrong by 2e-5
    "EVA02-B/16": lambda folder: real_open_clip(folder, "EVA02-B-16", noise=0.003),
    "EVA02-L/14": lambda folder: real_open_clip(folder, "EVA02-L-14", depth=2),
    "SigLIP-B/16": lambda folder: real_open_clip(folder, "ViT-B-16-SigLIP", depth=2),
    "SigLIP2-B/16": lambda folder: real_open_clip(folder, "ViT-B-16-SigLIP2", depth=2),
}

if __name__ == "__main__":
    for case in sys.argv[2:]:
        target = Path(sys.argv[1]) / case.replace("/", "_")
        target.mkdir(parents=True, exist_ok=True)
        CASES[case](target)
