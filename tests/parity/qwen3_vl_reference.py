"""Runs in an environment with torch: a tiny random Qwen3-VL with its tokenizer, and its embeddings.

  python tests/parity/qwen3_vl_reference.py OUT

OUT/model is a folder as transformers writes it, OUT/*.png are pictures, OUT/io.npz holds pixels and
grids of transformers' processor, ids and embeddings of conversations as Qwen3-VL-Embedding writes
them. Weights have a standard deviation of 0.2.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

PAD, IMAGE = "<|endoftext|>", "<|image_pad|>"
SPECIAL = [PAD, "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", IMAGE]
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # noqa: E501
TEXTS = ["A red dog, 12 cats' tails.", " two  ducks\nüber Köln", "", "a"]
QUESTIONS = ["What is left of it?", "Find a caption."]
SIZES = {"wide": (150, 90), "tall": (70, 205), "tiny": (20, 13)}  # width, height
MOST = 25  # image tokens, those of 160 x 160 pixels
INSTRUCTIONS = ["Represent the user's input.", "Find it, please."]
TEXT = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 48, "num_hidden_layers": 3, "pad_token_id": 0, "rope_parameters": {
            "rope_type": "default", "rope_theta": 5e3, "mrope_section": [4, 2, 2],
            "mrope_interleaved": True}}  # fmt: skip
VISION = {"hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "depth": 3,
          "out_hidden_size": 32, "num_position_embeddings": 25,
          "deepstack_visual_indexes": [0, 1]}  # fmt: skip


def tokenizer(folder: Path) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    words = pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([words, level])
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator([*TEXTS, *QUESTIONS, "system user assistant"] * 3, trainer)
    library.save(str(folder / "tokenizer.json"))
    return library


def conversation(instruction: str, content: str) -> str:
    return (
        f"<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def picture(grid: torch.Tensor) -> str:
    return f"<|vision_start|>{IMAGE * (int(grid.prod()) // 4)}<|vision_end|>"


def main(out: Path) -> None:
    (out / "model").mkdir()
    library = tokenizer(out / "model")
    config = transformers.Qwen3VLConfig(
        text_config={**TEXT, "vocab_size": library.get_vocab_size() + 2},
        vision_config=VISION,
        image_token_id=library.token_to_id(IMAGE),
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = transformers.Qwen3VLModel(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, x in model.named_parameters():
            is_scale = "norm" in name and name.endswith("weight")
            x.copy_(0.2 * torch.randn(x.shape, generator=generator) + is_scale)
    model.save_pretrained(out / "model")
    path = out / "model" / "preprocessor_config.json"
    path.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3}))

    edges = {"shortest_edge": 4 * 32**2, "longest_edge": MOST * 32**2}
    moments = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = Qwen2VLImageProcessorPil(patch_size=16, size=edges, **moments)
    rng, io = np.random.default_rng(0), {}
    pixels, grids = [], []
    for name, (width, height) in SIZES.items():
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        image.save(out / f"{name}.png")
        outputs = processor(image, return_tensors="pt")
        pixels.append(outputs["pixel_values"])
        grids.append(outputs["image_grid_thw"])
        io[f"{name}/pixels"] = outputs["pixel_values"].numpy()
        io[f"{name}/grid"] = outputs["image_grid_thw"][0, 1:].numpy()

    def embed(text: str, index: int | None = None) -> torch.Tensor:
        ids = torch.tensor([library.encode(text).ids])
        types = (ids == config.image_token_id).int()
        more = {} if index is None else {
            "pixel_values": pixels[index], "image_grid_thw": grids[index],
            "mm_token_type_ids": types}  # fmt: skip
        model.rope_deltas = None
        hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids), **more)
        return torch.nn.functional.normalize(hidden.last_hidden_state[0, -1], dim=-1)

    rows = {
        # a loaded model strips its texts
        "texts": [(text.strip(), None) for text in TEXTS],
        "images": [(picture(grid), i) for i, grid in enumerate(grids)],
        "questions": [(picture(grids[i]) + text, i) for i, text in enumerate(QUESTIONS)],
    }
    with torch.no_grad():
        for name, each in rows.items():
            found = [embed(conversation(INSTRUCTIONS[0], text), i) for text, i in each]
            io[name] = torch.stack(found).numpy()
    for number, instruction in enumerate(INSTRUCTIONS):
        for text in TEXTS:
            ids = library.encode(conversation(instruction, text)).ids
            io[f"ids/{number}/{text}"] = np.array(ids)
    np.savez(out / "io.npz", **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
