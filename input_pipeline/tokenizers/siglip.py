"""SigLIP's tokenizers: SentencePiece or Hugging Face files with SigLIP's cleaning and padding."""

from pathlib import Path

from vlc_jax.input_pipeline.tokenizers.hugging_face import HfTokenizer
from vlc_jax.input_pipeline.tokenizers.sentence_piece import SentencePieceTokenizer

IN_FOLDER = ("tokenizer.json", "spiece.model", "tokenizer.model")  # in Hugging Face's folders


def siglip_tokenizer(
    context_length: int,
    path: str | Path,
    eos_token: str = "</s>",
    pad_token: str = "</s>",
    clean: str = "canonicalize",
) -> HfTokenizer | SentencePieceTokenizer:
    """SigLIP's tokenizer: no start token, padding as in training, since the tower attends to it.

    `path`: a `tokenizer.json`, SentencePiece's `.model`, or a folder with one of them. For SigLIP 2
    (Gemma's vocabulary) set "<eos>", "<pad>" and clean="lower".
    """
    special = {"eos_token": eos_token, "pad_token": pad_token, "clean": clean}
    if str(path) and Path(path).is_dir():
        files = [Path(path) / name for name in IN_FOLDER if (Path(path) / name).exists()]
        if not files:
            raise ValueError(f"{path} holds no tokenizer; looked for {', '.join(IN_FOLDER)}")
        path = files[0]
    if Path(path).suffix == ".model":
        return SentencePieceTokenizer(context_length, path, **special)
    return HfTokenizer(context_length, path, **special, has_start=False)
