"""The recipes of LLaVA's two stages at full size, by shape."""

import dataclasses
import importlib

import jax
import pytest

from tests.support import small_models
from tests.support.marks import slow_but
from vlc_jax.configs.common import llava_stages
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.input_pipeline.tokenizers import conversation
from vlc_jax.setup import data, resolve

DECODERS = {  # parameters of the language model, its width, and of an adapter of rank 128
    "vicuna_7b": (6_738_415_616, 4096, 319_815_680),
    "llama3_8b": (8_030_261_248, 4096, 335_544_320),
    "phi3_mini": (3_821_079_552, 3072, 239_075_328),
}
IMAGE = 290_911_232  # ViT-L/14 at 336 pixels without its last block and its projection


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def planned(stage, argument):
    config = importlib.import_module(f"vlc_jax.configs.llava.{stage}").get_config(
        f"weights=x,tokenizer=y,{argument}"
    )
    return resolve(config, "plan", jax.devices()), config


@pytest.mark.parametrize("decoder", slow_but(("vicuna_7b",), DECODERS))
def test_sizes_and_what_is_trained(decoder):
    expected, width, adapters = DECODERS[decoder]
    projector = (1024 + 1) * width + (width + 1) * width
    for stage in ("stage1", "stage2"):
        parameters = planned(stage, f"decoder={decoder}")[0].parameters
        head = parameters.shapes["head"]
        assert size(head["lm"]) == expected
        assert {leaf.dtype.name for leaf in jax.tree.leaves(head["projector"])} == {"float32"}
        assert size(parameters.shapes["image"]) == IMAGE
        assert size(parameters.shapes) == expected + projector + IMAGE + 1  # the logit scale
        own = adapters if stage == "stage2" else 0
        assert size(parameters.trained_shapes()) == projector + own


def test_the_whole_language_model_is_trained_in_float32():
    trained = planned("stage2", "train=all,decoder=phi3_mini")[0].parameters.trained_shapes()
    assert size(trained["head"]["lm"]) == size(trained) - size(trained["head"]["projector"])
    assert size(trained["head"]["lm"]) == DECODERS["phi3_mini"][0]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(trained)} == {"float32"}


def test_the_class_token_alone_leaves_room_for_longer_texts():
    setup, config = planned("stage2", "select=cls")
    assert setup.model.head.select == "cls"
    assert config.text.context_length == 2047
    assert planned("stage2", "")[1].text.context_length == 2048 - 576


def test_an_unknown_decoder_or_selection_is_refused():
    with pytest.raises(ValueError, match="decoder is one of vicuna_7b, llama3_8b, phi3_mini"):
        planned("stage1", "decoder=vicuna_13b")
    with pytest.raises(ValueError, match="select is one of patch, cls, cls_patch; got 'pooled'"):
        planned("stage2", "select=pooled")


TURNS = Conversation((("what is it", "a dog"), ("is it", "it is")))
# Decoder -> special tokens, what stands before the image, and the text behind it, marked words
# with a star; | is a line end.
PROMPTS = {
    "vicuna_7b": (
        ("<s>", "</s>"),
        "<s> ... USER:",
        "| what is it ASSISTANT: a* dog* </s>* USER: is it ASSISTANT: it* is* </s>*",
    ),
    "llama3_8b": (
        (
            *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|end_of_text|>",
        ),
        "<|begin_of_text|> ... <|start_header_id|> user <|end_header_id|> | |",
        "| what is it <|eot_id|> <|start_header_id|> assistant <|end_header_id|> | | a* dog* "
        "<|eot_id|>* <|start_header_id|> user <|end_header_id|> | | is it <|eot_id|> "
        "<|start_header_id|> assistant <|end_header_id|> | | it* is* <|eot_id|>*",
    ),
    "phi3_mini": (
        ("<s>", "<|system|>", "<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>"),
        "<s> ... <|user|> |",
        "| what is it <|end|> | <|assistant|> | a* dog* <|end|>* | <|user|> | is it <|end|> | "
        "<|assistant|> | it* is* <|end|>*",
    ),
}


@pytest.mark.parametrize("decoder", PROMPTS)
def test_conversations_are_in_the_template_of_each_decoder(decoder, tmp_path):
    special, before, behind = PROMPTS[decoder]
    words = ["<unk>", *special, "\n", "user", "assistant", "USER:", "ASSISTANT:"]
    words += ["what", "is", "it", "a", "dog"]
    small_models.write_tokenizer(tmp_path, words, "<unk>", r"\n|[^\s]+", special)
    config = importlib.import_module("vlc_jax.configs.llava.stage2").get_config(
        f"weights=x,tokenizer={tmp_path}/tokenizer.json,decoder={decoder}"
    )
    tokenizer = data.make_tokenizer(config)
    question = Conversation.scored(prompts.VQASCORE.replace("{}", "a dog"), "Yes")
    assert (tokenizer(["a dog"]) == tokenizer([question])).all()  # a caption's score is VQAScore
    ids, marks = tokenizer([TURNS])[0], tokenizer.marks([TURNS])[0]
    shown = [
        words[i].replace("\n", "|") + "*" * int(mark) for i, mark in zip(ids, marks, strict=True)
    ]
    assert " ".join(shown[: len(behind.split())]) == behind
    assert set(ids[len(behind.split()) :]) == {tokenizer.pad_id}
    read = [words[i].replace("\n", "|") for i in tokenizer.before_image(config.model.head.prefix)]
    first, last = (part.split() for part in before.split("..."))
    assert (read[: len(first)], read[-len(last) :]) == (first, last)
    alone = tokenizer([dataclasses.replace(TURNS, has_image=False)])[0]
    # all of it but the line end that is behind an image
    whole = [*tokenizer.before_image(config.model.head.prefix), *ids[1 : len(behind.split())]]
    assert alone[: len(whole) + 1].tolist() == [*whole, tokenizer.pad_id]


@pytest.mark.parametrize(
    ("decoder", "name"),
    [("vicuna_7b", "llava_v1"), ("llama3_8b", "llama_3_v"), ("phi3_mini", "phi_3_v")],
)
def test_training_and_evaluation_have_the_same_prompt(decoder, name):
    _, before, options = llava_stages.DECODERS[decoder]
    text = f"{before}{prompts.IMAGE}{options.get('template', conversation.TEMPLATE)}"
    # a start token that the text names is added to it in training
    evaluated = prompts.TEMPLATES[name].text.removeprefix("<|begin_of_text|>").rstrip(" ")
    assert text == evaluated
    assert llava_stages.VQASCORE == prompts.VQASCORE
