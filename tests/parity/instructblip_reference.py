"""Runs in an environment with torch: a tiny random InstructBLIP, its features, scores and answers.

  python tests/parity/instructblip_reference.py OUT [FOLDER]

OUT/model is a folder as transformers writes it, with the processor's files; OUT/io.npz has inputs
and outputs. With FOLDER, OUT.npy gets the logits of the model that transformers loads from there.
"""

import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from llava_reference import redrawn
from tokenizers import models, normalizers, pre_tokenizers, trainers

CAPTIONS = ["a red circle", "the blue square on the left"]
QUESTION = "Is the circle on the left or on the right?"
VQASCORE = 'Does this figure show "{}"? Please answer yes or no.'
QUERIES, SIDE = 5, 28
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 7,
          "intermediate_size": 48, "image_size": SIDE}  # fmt: skip
QFORMER = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3,
           "intermediate_size": 40, "max_position_embeddings": 64}  # fmt: skip
TEXT = {"model_type": "llama", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 6, "intermediate_size": 64, "max_position_embeddings": 256,
        "tie_word_embeddings": False}  # fmt: skip


def llama(texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    """BPE as Llama's, with "</s>" as start token, as in the published folder."""
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    replace = normalizers.Replace(" ", "\u2581")
    library.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), replace])
    # no token spans two words, as Llama's merges have it
    library.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", "[PAD]", "<image>"]
    trainer = trainers.BpeTrainer(special_tokens=special, vocab_size=100, show_progress=False)
    library.train_from_iterator(texts, trainer)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", 2)]
    )
    replace = tokenizers.decoders.Replace("\u2581", " ")
    library.decoder = tokenizers.decoders.Sequence([replace, tokenizers.decoders.Fuse()])
    names = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "[PAD]"}
    names["additional_special_tokens"] = ["<image>"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names)


def bert(texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    words = {word for text in texts for word in text.lower().replace('"', ' " ').split()}
    words |= {mark for word in words for mark in word if not mark.isalnum()}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words), "[DEC]"]
    return transformers.BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})


def build(processor: transformers.InstructBlipProcessor) -> torch.nn.Module:
    text = TEXT | {"vocab_size": len(processor.tokenizer) + 3}
    config = transformers.InstructBlipConfig(
        vision_config=VISION,
        qformer_config=QFORMER | {"vocab_size": len(processor.qformer_tokenizer)},
        text_config=text,
        num_query_tokens=QUERIES,
        image_token_index=processor.tokenizer.convert_tokens_to_ids("<image>"),
        attn_implementation="eager",
    )
    model = redrawn(transformers.InstructBlipForConditionalGeneration(config))
    for name, x in model.named_parameters():
        if name.endswith("LayerNorm.weight"):
            x += 1
    return model


def outputs(model, processor, pictures: np.ndarray) -> dict[str, np.ndarray]:
    asked = [VQASCORE.format(caption) for caption in CAPTIONS]
    # one question for each picture, of three lengths
    questions = [asked[1], QUESTION, "red"]
    given = processor(images=list(pictures), text=questions, return_tensors="pt", padding=True)
    rows = {key: given[f"qformer_{key}"] for key in ("input_ids", "attention_mask")}
    pixels = given["pixel_values"]
    read = {f"qformer_{key}": x for key, x in rows.items()}
    features = model.get_image_features(pixels, **read, return_dict=True)
    io = {
        "pixels": pixels.permute(0, 2, 3, 1).numpy(),
        "asked": np.where(rows["attention_mask"] > 0, -2 - rows["input_ids"], -1),
        "vision": features.vision_outputs.last_hidden_state.numpy(),
        "query": features.qformer_outputs.last_hidden_state[:, :QUERIES].numpy(),
        "projected": features.pooler_output.numpy(),
        "logits": model(**given).logits.numpy(),
        **{f"given/{key}": x.numpy() for key, x in given.items()},
    }
    scores = np.zeros((len(pictures), len(asked)))
    for column, question in enumerate(asked):
        given = processor(images=list(pictures), text=[question] * 3, return_tensors="pt")
        prompt = given["input_ids"]
        whole = [*processor.tokenizer(f"{question} Yes").input_ids, 2]
        answer = torch.tensor(whole[prompt.shape[1] - QUERIES :])
        assert whole[: -len(answer)] == prompt[0, QUERIES:].tolist()
        ids = torch.cat([prompt, answer.expand(3, -1)], dim=1)
        more = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        log_p = model(**{**given, **more}).logits.log_softmax(-1)[:, -len(answer) - 1 : -1]
        chosen = log_p.gather(2, answer.expand(3, -1)[..., None])[..., 0]
        scores[:, column] = chosen.mean(1)
    io["scores"] = scores
    given = processor(images=list(pictures), text=[QUESTION] * 3, return_tensors="pt")
    ids = model.generate(**given, max_new_tokens=10, do_sample=False, eos_token_id=2,
                         pad_token_id=2)  # fmt: skip
    ids = ids[:, given["input_ids"].shape[1] :] if ids.shape[1] > 10 else ids
    answers = processor.tokenizer.batch_decode(ids, skip_special_tokens=True)
    io["answers"] = np.array([answer.strip() for answer in answers])
    return io


def main(out: Path, saved: str = "") -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if saved:
        model, report = transformers.InstructBlipForConditionalGeneration.from_pretrained(
            saved, output_loading_info=True
        )
        assert not report["missing_keys"], report
        assert not report["unexpected_keys"], report
        with np.load(out / "io.npz") as io:
            given = {k[6:]: torch.from_numpy(io[k]) for k in io.files if k.startswith("given/")}
        np.save(out / "logits.npy", model.eval()(**given).logits.numpy())
        return
    texts = [*(VQASCORE.format(caption) + " Yes" for caption in CAPTIONS), QUESTION]
    pixels = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor = transformers.InstructBlipProcessor(pixels, llama(texts), bert(texts), QUERIES)
    model = build(processor)
    model.save_pretrained(out / "model")
    processor.save_pretrained(out / "model")
    pictures = np.random.default_rng(1).integers(0, 256, (3, 40, 33, 3), np.uint8)
    io = outputs(model, processor, pictures)
    np.savez(out / "io.npz", pictures=pictures, **io)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
