"""Runs in an environment with torch: tiny random PaliGemma and Gemma 3, and their outputs.

  python tests/parity/gemma_reference.py OUT

OUT/<model>/ is a folder as transformers writes it, OUT/<model>_old/ the same weights by the names
of before version 5, OUT/io.npz holds inputs and outputs. Weights are drawn with a standard
deviation of 0.2: with those that transformers starts from all logits are small, and mistakes too.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

IMAGE_ID, BEGIN, END = 120, 121, 122
TEXT = {"hidden_size": 48, "num_attention_heads": 6, "vocab_size": 128, "head_dim": 16,
        "intermediate_size": 64, "max_position_embeddings": 256, "bos_token_id": 2,
        "eos_token_id": 1, "pad_token_id": 0}  # fmt: skip
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 7,
          "intermediate_size": 48}  # fmt: skip
SIDES = {"paligemma": 28, "gemma3": 56}  # pixels; 16 image tokens each, of 16 and 64 patches
ROPE = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
KINDS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
GEMMA3 = {**TEXT, "num_hidden_layers": 4, "num_key_value_heads": 2, "sliding_window": 8,
          "layer_types": KINDS, "rope_parameters": ROPE, "query_pre_attn_scalar": 20}  # fmt: skip


def redrawn(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, x in model.named_parameters():
            noise = torch.randn(x.shape, generator=generator)
            is_layer_norm = "vision_tower" in name and "norm" in name and name.endswith("weight")
            x.copy_(0.2 * noise + is_layer_norm)
    return model.eval()


def make(name: str) -> torch.nn.Module:
    vision = {**VISION, "image_size": SIDES.get(name)}
    if name == "paligemma":
        config = transformers.PaliGemmaConfig(
            vision_config={**vision, "model_type": "siglip_vision_model"},
            text_config={**TEXT, "model_type": "gemma", "num_hidden_layers": 3,
                         "num_key_value_heads": 1},
            projection_dim=48, image_token_index=IMAGE_ID, attn_implementation="eager",
        )  # fmt: skip
        return redrawn(transformers.PaliGemmaForConditionalGeneration(config))
    if name == "gemma3":
        config = transformers.Gemma3Config(
            vision_config={**vision, "vision_use_head": False}, text_config=GEMMA3,
            mm_tokens_per_image=16, image_token_index=IMAGE_ID, boi_token_index=BEGIN,
            eoi_token_index=END, attn_implementation="eager",
        )  # fmt: skip
        return redrawn(transformers.Gemma3ForConditionalGeneration(config))
    config = transformers.Gemma3TextConfig(**GEMMA3, attn_implementation="eager")
    return redrawn(transformers.Gemma3ForCausalLM(config))


NAMES = {"ids": "input_ids", "types": "token_type_ids", "mask": "attention_mask"}


def texts(name: str, padding: str, has_answer: bool) -> dict[str, torch.Tensor]:
    """Three rows of different lengths, of which the second has no image; with answers of 4 to 6."""
    generator = torch.Generator().manual_seed(5)
    rows = []
    for images, question, answer in ((1, 5, 4), (0, 14, 6), (1, 11, 5)):
        image = torch.full((16 * images,), IMAGE_ID)
        if name == "gemma3":
            image = torch.cat([torch.tensor([2, 9, BEGIN]), image, torch.tensor([END])])
        words = torch.randint(3, 110, (question + answer,), generator=generator)
        row = torch.cat([image, words if has_answer else words[:question]])
        types = (row == IMAGE_ID).long()
        if name == "paligemma":
            types = (torch.arange(len(row)) >= len(image) + question).long()
        rows.append((row, types))
    longest = max(len(row) for row, _ in rows)
    found = {key: torch.zeros(3, longest, dtype=torch.long) for key in NAMES}
    for i, (row, types) in enumerate(rows):
        where = slice(len(row)) if padding == "right" else slice(longest - len(row), None)
        for key, values in zip(NAMES, (row, types, torch.ones_like(row)), strict=True):
            found[key][i, where] = values
    return found


def outputs(name: str, model: torch.nn.Module, io: dict) -> None:
    side = SIDES[name]
    images = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(4))
    io[f"{name}/images"] = images.permute(0, 2, 3, 1).numpy()
    pixels = images[[0, 2]]
    features = model.get_image_features(pixels).pooler_output
    io[f"{name}/projected"] = torch.as_tensor(features).numpy()
    for padding in ("left", "right"):
        rows = texts(name, padding, has_answer=True)
        io |= {f"{name}/{padding}/{key}": x.numpy() for key, x in rows.items()}
        given = {NAMES[key]: x for key, x in rows.items()}
        io[f"{name}/{padding}/logits"] = model(**given, pixel_values=pixels).logits.numpy()
    rows = texts(name, "left", has_answer=False)
    given = {NAMES[key]: x for key, x in rows.items()}
    ids = model.generate(**given, pixel_values=pixels, max_new_tokens=10, do_sample=False,
                         eos_token_id=127, pad_token_id=127)  # fmt: skip
    length = rows["ids"].shape[1]
    io |= {f"{name}/prompt/{key}": x.numpy() for key, x in rows.items()}
    io[f"{name}/generated"] = ids[:, length:].numpy()


def older(out: Path, name: str, model: torch.nn.Module) -> None:
    """The weights by the names of before version 5, and the config.json of that time."""
    names = ((r"model\.language_model\.", "language_model.model."),
             (r"model\.vision_tower\.", "vision_tower.vision_model."),
             (r"model\.multi_modal_projector", "multi_modal_projector"))  # fmt: skip
    renamed = {}
    for key, x in model.state_dict().items():
        for theirs, ours in names:
            key = re.sub(f"^{theirs}", ours, key)
        if key != "lm_head.weight":
            renamed[key] = x.clone().contiguous()
    folder = out / f"{name}_old"
    folder.mkdir()
    save_file(renamed, folder / "model.safetensors")
    config = json.loads((out / name / "config.json").read_text())
    text = config["text_config"]
    for key in ("rope_parameters", "layer_types", "use_bidirectional_attention"):
        text.pop(key, None)
    if name == "gemma3":
        text |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3,
                 "rope_scaling": {"rope_type": "linear", "factor": 8.0}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    io: dict = {}
    for name in SIDES:
        model = make(name)
        model.save_pretrained(out / name)
        older(out, name, model)
        outputs(name, model, io)
    model = make("gemma3_text")
    model.save_pretrained(out / "gemma3_text")
    ids = torch.randint(3, 128, (2, 30), generator=torch.Generator().manual_seed(0))
    io |= {
        "gemma3_text/ids": ids.numpy(),
        "gemma3_text/logits": model(input_ids=ids).logits.numpy(),
    }
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
