"""Tokenizers of decoders: where answers start, start tokens, streaming."""

import json

import numpy as np
import pytest
import tokenizers

from tests.support import small_models
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer, TextStream
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize

TEXTS = ["USER: Is the mug on the table? ASSISTANT: Yes", "Answer A or B", "No A B Yes é 狗"] * 8


@pytest.fixture(scope="module")
def piece_tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.model"
    small_models.write_pieces(path, TEXTS)
    return DecoderTokenizer(path.parent)


@pytest.fixture(scope="module")
def json_tokenizer(tmp_path_factory):
    """Byte-level BPE with BOS, as Llama 3 has it, and a token for the image."""
    special = ["<s>", "</s>", "<|begin_of_text|>", "<|eot_id|>", "<image>"]
    library = small_models.byte_pairs(TEXTS, special, 320)
    small_models.surround(library, "<|begin_of_text|> $A")
    folder = tmp_path_factory.mktemp("json")
    library.save(str(folder / "tokenizer.json"))
    return DecoderTokenizer(folder)


def talker(path, length=40, **options):
    return make_tokenizer(
        "conversation", length, **{"path": str(path), "pad_token": "<unk>"} | options
    )


def answer(arrays):
    return [row[marks > 0].tolist() for row, marks in zip(*arrays.values(), strict=True)]


TEMPLATES = ("\n{question} ASSISTANT:", "\n{question} ASSISTANT: ")


def test_a_conversation_without_an_image_is_one_text(piece_tokenizer):
    tokenizer = talker(piece_tokenizer.path, before="USER: ")
    text = Conversation((("Is the mug on the table?", "Yes"),), has_image=False)
    whole = piece_tokenizer.encode(TEXTS[0], has_start=True)
    ids = tokenizer([text])[0]
    assert ids[: len(whole) + 1].tolist() == [*whole, piece_tokenizer.id_of("</s>")]
    space = piece_tokenizer.id_of("▁")  # of its own before an image alone
    assert space in tokenizer.before_image("USER: ")
    assert space not in ids


@pytest.mark.parametrize("letter", ["A", "B"])
def test_an_answer_is_its_letter_and_the_end_token(piece_tokenizer, letter):
    """A space at the end of a template would be a token of its own, which goes where an answer
    follows."""
    rows = []
    for template in TEMPLATES:
        tokenizer = talker(piece_tokenizer.path, template=template)
        rows.append(tokenize(tokenizer, [Conversation.scored("Q?", letter)]))
        ids = [piece_tokenizer.id_of(f"▁{letter}"), piece_tokenizer.id_of("</s>")]
        assert answer(rows[-1]) == [ids]
        prompt = tokenizer.prompt("Q?")
        assert rows[-1]["text"][0, : len(prompt) + 2].tolist() == [*prompt, *ids]
        assert prompt == piece_tokenizer.encode("\nQ? ASSISTANT:")
    np.testing.assert_array_equal(rows[0]["text"], rows[1]["text"])
    assert piece_tokenizer.encode("\nQ? ASSISTANT: ")[-1] == piece_tokenizer.id_of("▁")


def test_the_text_before_an_image_begins_with_the_start_token(piece_tokenizer):
    tokenizer = talker(piece_tokenizer.path)
    start, *others = tokenizer.before_image("USER: ")
    assert start == piece_tokenizer.id_of("<s>")
    assert others == piece_tokenizer.encode("USER: ")


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory):
    """Spaces as Llama's tokenizer.json has them since transformers 5: one is put before the first
    word of a string alone, so that text behind a special token has none."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    library.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(
        special_tokens=["<unk>", "<s>", "</s>", "<image>"], show_progress=False
    )
    library.train_from_iterator([*TEXTS, "\nQ? ASSISTANT: A cat"], trainer)
    folder = tmp_path_factory.mktemp("llama")
    library.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("image_token", ["", "<image>"])
def test_text_behind_an_image_is_alone_or_in_the_prompt(llama_folder, image_token):
    """LLaVA's own code does the one, Hugging Face's processor the other."""
    library = tokenizers.Tokenizer.from_file(str(llama_folder / "tokenizer.json"))
    alone = library.encode("\nQ? ASSISTANT: Yes").ids
    whole = library.encode("USER: <image>\nQ? ASSISTANT: Yes").ids
    behind = whole[whole.index(library.token_to_id("<image>")) + 1 :]
    assert alone != behind
    tokenizer = talker(llama_folder, eos_token="</s>", image_token=image_token)
    ids = behind if image_token else alone
    rows = tokenize(tokenizer, [Conversation.scored("Q?", "Yes"), "Q?"])
    assert rows["text"][0, : len(ids)].tolist() == ids
    assert answer(rows)[0] == [*library.encode(" Yes").ids, tokenizer.eos_id]
    assert tokenizer.prompt("Q?") == ids[: len(tokenizer.prompt("Q?"))]
    plain = talker(llama_folder, eos_token="</s>")
    assert (plain.fingerprint == tokenizer.fingerprint) == (not image_token)


def test_an_image_token_that_the_vocabulary_lacks_is_refused(llama_folder):
    with pytest.raises(ValueError, match="has no token '<picture>'"):
        talker(llama_folder, eos_token="</s>", image_token="<picture>")


def test_an_answer_behind_a_line_end_has_no_space(json_tokenizer):
    """Of Llama 3, whose start token is in its template."""
    special = {"eos_token": "<|eot_id|>", "pad_token": "</s>"}
    template = "\n{question}<|eot_id|>\n\n"
    tokenizer = talker(json_tokenizer.path.parent, 60, template=template, **special)
    (found,) = answer(tokenize(tokenizer, [Conversation.scored("Q?", "Yes")]))
    assert json_tokenizer.decode(found) == "Yes"
    assert found[-1] == json_tokenizer.id_of("<|eot_id|>")


def test_a_stream_adds_up_and_never_shows_half_a_letter(piece_tokenizer, json_tokenizer):
    for tokenizer in (piece_tokenizer, json_tokenizer):
        text = "Is the mug é 犬 ok?"
        ids = tokenizer.encode(text, has_start=True)
        stream = TextStream(tokenizer)
        added = [stream(i) for i in ids]
        assert "".join(added) == tokenizer.decode(ids) == text
        assert not any("\ufffd" in piece for piece in added)
        assert "" in added[1:]  # the letter that has several tokens


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"neither tokenizer.json nor tokenizer.model"):
        DecoderTokenizer(tmp_path)


def test_llamas_model_without_padding_takes_the_declared_token(piece_tokenizer, tmp_path):
    """As LLaVA-1.5's own folder: padding is <unk>."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(piece_tokenizer.path.read_bytes())
    with pytest.raises(ValueError, match="has no pad_token"):
        make_tokenizer("conversation", context_length=16, path=str(tmp_path))
    declared = {"pad_token": "<unk>", "eos_token": {"content": "</s>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(declared))
    for each in (tmp_path, path):
        tokenizer = make_tokenizer("conversation", context_length=16, path=str(each))
        assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 2)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    with pytest.raises(ValueError, match=r"pad_token '\[PAD\]' is not in the vocabulary"):
        make_tokenizer("conversation", context_length=16, path=str(tmp_path))
