"""A plain loop over transformers that computes VQAScore, for speed/mllm.py.

Each image-caption pair has its own prompt."""

import json
from pathlib import Path

import tokenizers
import torch
import transformers
from PIL import Image

from speed import harness

IMAGE_TOKENS, VOCAB, IMAGE_ID = 256, 32_064, 32_000
QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
WORDS = (
    "<unk>", "<s>", "</s>", "\n", "USER:", "ASSISTANT:", "Yes", "Does", "this", "figure", "show",
    "?", '"', "Please", "answer", "yes", "or", "no", ".", "a", "the", "to", "left", "right", "of",
    "behind", "in", "front", "under", "next", "red", "blue", "green", "black", "white", "yellow",
    "brown", "grey", "dog", "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird",
)  # fmt: skip


def write_model(folder: Path) -> torch.nn.Module:
    """Writes the folder of a LLaVA with random weights, and its tokenizer."""
    torch.manual_seed(0)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            hidden_size=192, num_hidden_layers=6, num_attention_heads=6, intermediate_size=768,
            image_size=224, patch_size=14, projection_dim=192, hidden_act="quick_gelu",
        ),
        text_config=transformers.LlamaConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1024,
            vocab_size=VOCAB, max_position_embeddings=1024,
        ),
        image_token_index=IMAGE_ID, image_seq_length=IMAGE_TOKENS,
    )  # fmt: skip
    model = transformers.LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        # with the library's small initial weights all scores are nearly equal
        for name, x in model.named_parameters():
            if x.ndim > 1:
                x.normal_(0, 0.5 if "embed_tokens" in name else x.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    words = {word: number for number, word in enumerate(WORDS)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    split = tokenizers.Regex(r"\n|</s>|<s>|\w+:?|[^\s\w]")
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(split, "removed", invert=True)
    library.add_special_tokens(["<s>", "</s>"])
    library.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "</s>", "pad_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return model


def build(folder: str, batch_size: int) -> tuple[dict, harness.Ask]:
    """Facts, and a function that scores the pairs of a benchmark."""
    folder = Path(folder)
    model = write_model(folder / "llava")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "llava/tokenizer.json"))
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 224}, crop_size={"height": 224, "width": 224}
    )
    benchmarks = json.loads((folder / "cases.json").read_text())

    def ids(caption: str) -> list[int]:
        before, behind = "<s>USER: ", f"\n{QUESTION.format(caption)} ASSISTANT: Yes</s>"
        encode = tokenizer.encode
        return [*encode(before).ids, *[IMAGE_ID] * IMAGE_TOKENS, *encode(behind).ids]

    @torch.inference_mode()
    def score(batch: list[tuple[str, str]]) -> list[float]:
        images = [Image.open(folder / image).convert("RGB") for image, _ in batch]
        pixels = processor(images=images, return_tensors="pt")["pixel_values"]
        rows = [ids(caption) for _, caption in batch]
        length = max(map(len, rows))
        input_ids, mask = torch.zeros(2, len(rows), length, dtype=torch.long)
        for i, row in enumerate(rows):
            input_ids[i, : len(row)], mask[i, : len(row)] = torch.tensor(row), 1
        logits = model(input_ids=input_ids, attention_mask=mask, pixel_values=pixels).logits
        log_p = logits.log_softmax(-1)
        scores = []
        # mean log p of "Yes" and the end token
        for i, row in enumerate(rows):
            last = range(len(row) - 2, len(row))
            scores.append(sum(log_p[i, k - 1, row[k]].item() for k in last) / 2)
        return scores

    def ask(name: str) -> dict:
        pairs = [(row["image"], text) for row in benchmarks[name] for text in row["captions"]]
        starts = range(0, len(pairs), batch_size)
        scores, seconds = harness.timed(
            lambda: [x for first in starts for x in score(pairs[first : first + batch_size])]
        )
        return {**seconds, "scores": scores}

    parameters = sum(x.numel() for x in model.parameters())
    return {"weights": {"path": str(folder / "llava")}, "parameters": parameters}, ask


if __name__ == "__main__":
    harness.serve(build)
