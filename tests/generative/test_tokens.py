"""Token ids of prompts: where answers start, both rules for images, BOS, padding, streaming."""

import io

import numpy as np
import pytest
import sentencepiece
import tokenizers

from input_pipeline.tokenizers.decoder import DecoderTokenizer, TextStream
from vlc_jax.errors import UsageError
from vlc_jax.generative import prompts, tokens

TEXTS = ["USER: Is the mug on the table? ASSISTANT: Yes", "Answer A or B", "No A B Yes é 狗"] * 8


@pytest.fixture(scope="module")
def piece_tokenizer(tmp_path_factory):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=330,
        model_type="bpe",
        byte_fallback=True,
        user_defined_symbols=["\n"],
        hard_vocab_limit=False,
        normalization_rule_name="identity",  # both as Llama's model has them
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return DecoderTokenizer(path.parent)


@pytest.fixture(scope="module")
def json_tokenizer(tmp_path_factory):
    """Byte-level BPE with BOS, as Llama 3 has it, and a token for the image."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "</s>", "<|begin_of_text|>", "<|eot_id|>", "<image>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(TEXTS, trainer)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 2)]
    )
    folder = tmp_path_factory.mktemp("json")
    library.save(str(folder / "tokenizer.json"))
    return DecoderTokenizer(folder)


def chunked(tokenizer, images=2, bos="<s>"):
    return tokens.Tokenization(tokenizer, "chunked", images, bos)


def answer(row):
    return [i for i, is_one in zip(row.ids, row.is_answer, strict=True) if is_one]


def test_an_answer_is_its_letter_and_the_terminator(piece_tokenizer):
    for prompt in ("USER: <image>\nQ? ASSISTANT:", "USER: <image>\nQ? ASSISTANT: "):
        for letter in "AB":
            row = tokens.encode(chunked(piece_tokenizer), prompt, letter, "</s>")
            ids = [piece_tokenizer.id_of(f"▁{letter}"), piece_tokenizer.id_of("</s>")]
            assert answer(row) == ids
            assert row.ids[-2:] == ids
            assert row.ids[0] == piece_tokenizer.id_of("<s>")


def test_a_trailing_space_of_the_prompt_is_no_token(piece_tokenizer):
    how = chunked(piece_tokenizer)
    assert tokens.encode(how, "ASSISTANT: ") == tokens.encode(how, "ASSISTANT:")
    with_space = piece_tokenizer.encode("ASSISTANT: ")
    assert with_space == [*piece_tokenizer.encode("ASSISTANT:"), piece_tokenizer.id_of("▁")]
    prompt, whole = (tokens.encode(how, "ASSISTANT: ", text) for text in ("", "Yes"))
    assert whole.ids[: len(prompt.ids)] == prompt.ids
    assert whole.is_answer == [k >= len(prompt.ids) for k in range(len(whole.ids))]


def test_an_image_takes_its_tokens_and_chunks_start_anew(piece_tokenizer):
    row = tokens.encode(chunked(piece_tokenizer, 3), "USER: <image>A")
    before, behind = piece_tokenizer.encode("USER: "), piece_tokenizer.encode("A")
    assert row.ids == [piece_tokenizer.id_of("<s>"), *before, 0, 0, 0, *behind]
    assert row.is_image == [False] * (1 + len(before)) + [True] * 3 + [False] * len(behind)


def test_in_string_keeps_the_token_of_the_image_and_needs_one(json_tokenizer, piece_tokenizer):
    how = tokens.Tokenization(json_tokenizer, "in_string", 4, "<|begin_of_text|>")
    row = tokens.encode(how, "USER: <image>\nQ? ASSISTANT:", "Yes", "</s>")
    assert row.ids.count(json_tokenizer.id_of("<image>")) == sum(row.is_image) == 4
    assert json_tokenizer.decode(answer(row)) == " Yes"
    assert answer(row)[-1] == json_tokenizer.id_of("</s>")
    with pytest.raises(UsageError, match="use rule chunked"):
        tokens.encode(tokens.Tokenization(piece_tokenizer, "in_string", 4), "<image>")


def test_llama_3_has_two_bos_and_no_space_before_its_answer(json_tokenizer):
    how = chunked(json_tokenizer, bos="<|begin_of_text|>")
    row = tokens.encode(how, prompts.fill("llama_3_v", "Q?"), "Yes", "<|eot_id|>")
    assert row.ids[:3].count(json_tokenizer.id_of("<|begin_of_text|>")) == 2
    assert json_tokenizer.decode(answer(row)) == "Yes"
    assert answer(row)[-1] == json_tokenizer.id_of("<|eot_id|>")


def test_answers_of_all_turns_are_marked_and_nothing_else(piece_tokenizer):
    turns = [("USER: A ASSISTANT: ", False), ("Yes</s>", True)]
    turns += [("USER: B ASSISTANT: ", False), ("No</s>", True)]
    row = tokens.encode_turns(chunked(piece_tokenizer), turns)
    assert piece_tokenizer.decode(answer(row)).split() == ["Yes", "No"]
    assert answer(row).count(piece_tokenizer.id_of("</s>")) == 2


def test_a_missing_bos_is_refused(json_tokenizer):
    with pytest.raises(UsageError, match="ids must start with <s>"):
        tokens.encode(chunked(json_tokenizer), "Q?")


def test_padding_goes_to_one_side_and_the_smallest_length(piece_tokenizer):
    how = chunked(piece_tokenizer)
    rows = [tokens.encode(how, "USER: <image>", "Yes"), tokens.encode(how, "USER: <image> Q?", "A")]
    longest = max(len(row.ids) for row in rows)
    for side in tokens.SIDES:
        batch = tokens.pad(rows, (99, longest + 1, longest - 1), side, pad_id=7)
        assert batch.ids.shape == (2, longest + 1)
        for number, row in enumerate(rows):
            valid = batch.valid[number]
            assert valid.sum() == len(row.ids)
            assert valid[-1 if side == "left" else 0]
            assert (batch.ids[number][~valid] == 7).all()
            np.testing.assert_array_equal(batch.ids[number][valid], row.ids)
            np.testing.assert_array_equal(batch.is_image[number][valid], row.is_image)
            np.testing.assert_array_equal(batch.answer_mask[number][valid], row.is_answer)
            assert not (batch.is_image | batch.answer_mask)[number][~valid].any()
    with pytest.raises(UsageError, match="add a longer one"):
        tokens.pad(rows, (longest - 1,))


def test_a_stream_adds_up_to_the_text_and_never_shows_half_a_letter(
    piece_tokenizer, json_tokenizer
):
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
