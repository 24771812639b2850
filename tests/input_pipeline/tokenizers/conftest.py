"""Vocabularies made here: a tokenizer.json and a SentencePiece model."""

import io

import pytest
import sentencepiece
import tokenizers as hf

from vlc_jax.input_pipeline.tokenizers import word_level

CORPUS = ["a red circle left of a blue square", "the blue square", "two red circles, one ring"] * 4


@pytest.fixture
def words():
    return word_level.WordTokenizer(8, words=("a", "blue", "circle", "red", "square"))


@pytest.fixture
def hf_folder(tmp_path):
    """A tokenizer.json that adds a start token itself, and the files that name its special ones."""
    tokenizer = hf.Tokenizer(hf.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = hf.trainers.BpeTrainer(special_tokens=special, vocab_size=80, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = hf.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def sentencepiece_model(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    path = tmp_path / "spiece.model"
    path.write_bytes(model.getvalue())
    return path
