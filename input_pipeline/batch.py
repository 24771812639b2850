"""THE batch contract: host-local numpy arrays, fixed shapes, ready for `sharding.put_batch`.

  image          uint8   (batch, height, width, 3)       RGB, normalised on the device;
                                                         of crop naflex a mosaic, images/naflex.py
  text           int32   (batch, length)                 token ids, padded; or vectors, see below
  id             uint64  (batch,)                        hash of the image, see `image_id`
  mask           bool    (batch,)                        False on rows that only fill the batch
Optional keys, present if the config uses hard texts:
  negative_text  int32   (batch, negatives, length)      negative_mask  bool (batch, negatives)
  positive_text  int32   (batch, positives, length)      positive_mask  bool (batch, positives)
With config.input.question (a question about every image), token ids:
  question       int32   (batch, length)
If the source has text-only records, whose image is black:
  has_image      bool    (batch,)
With the losses self_distill and masked_patches, crops of each image and the indices of its patches
that are masked (loader/views.py):
  crops          uint8   (batch, crops, height, width, 3)
  masked_patches int32   (batch, masked)
With config.text.functional_words, 1 + the index of the token's word in that list, 0 elsewhere
(tokenizers/functional_words.py); with the tokenizer `conversation`, 1 on answer tokens:
  text_marks     int8    (batch, length)
  negative_text_marks, positive_text_marks       int8 (batch, negatives or positives, length)
Text vectors from a file (tokenizers/text_vectors.py) are float32 of shape (batch, width),
(batch, negatives, width), (batch, positives, width). Stored features of frozen towers replace
`image` and accompany `text`, in float32, float16 or bfloat16:
  image_pooled   (batch, embed)   image_tokens  (batch, patches, width)
  text_pooled    (batch, embed)   text_tokens   (batch, length, width)
  negative_text_pooled (batch, negatives, embed), ..., positive_text_tokens likewise
"""

import hashlib

import numpy as np

from vlc_jax.input_pipeline.record import DataError, Record

Batch = dict[str, np.ndarray]

FLOATS = ("float32", "float16", "bfloat16")
TEXT = ("int32", "float32")
CONTRACT: dict[str, tuple[tuple[str, ...], int]] = {  # key -> dtypes, number of axes
    "image": (("uint8",), 4),
    "image_pooled": (FLOATS, 2),
    "image_tokens": (FLOATS, 3),
    "text": (TEXT, 2),
    "text_marks": (("int8",), 2),
    "text_pooled": (FLOATS, 2),
    "text_tokens": (FLOATS, 3),
    "question": (("int32",), 2),
    "has_image": (("bool",), 1),
    "crops": (("uint8",), 5),
    "masked_patches": (("int32",), 2),
    "id": (("uint64",), 1),
    "mask": (("bool",), 1),
    "negative_text": (TEXT, 3),
    "negative_text_marks": (("int8",), 3),
    "negative_mask": (("bool",), 2),
    "negative_text_pooled": (FLOATS, 3),
    "negative_text_tokens": (FLOATS, 4),
    "positive_text": (TEXT, 3),
    "positive_text_marks": (("int8",), 3),
    "positive_mask": (("bool",), 2),
    "positive_text_pooled": (FLOATS, 3),
    "positive_text_tokens": (FLOATS, 4),
}
REQUIRED = ("text", "id", "mask")
TEXTS = ("text", "negative_text", "positive_text", "question")


def hash_id(record_id: str) -> np.uint64:
    """64-bit hash of a record id, the same on every machine and in every run (unlike `hash`)."""
    # 64 bits: among 10 million ids any two collide with a chance of 3 in a million.
    # half a surrogate pair, which JSON can hold, is an error of its record and not of the table
    digest = hashlib.blake2b(record_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def image_id(record: Record) -> np.uint64:
    """Hash of a record's image: of its name (`image` in `meta`, where records may share an image),
    else of the record's id."""
    return hash_id(str(record.meta.get("image") or record.id))


def split_ids(ids: np.ndarray) -> np.ndarray:
    """Halves of ids, uint64 (batch,) -> uint32 (batch, 2), low first: JAX defaults to 32 bits."""
    return np.stack([ids & np.uint64(0xFFFFFFFF), ids >> np.uint64(32)], 1).astype(np.uint32)


def longest_text(batch: Batch, pad_id: int, eos_id: int) -> int:
    """Number of columns that the longest text takes, its end token included."""
    # not up to the first end token: a conversation has several, so all but padding counts
    ends = [
        np.flatnonzero((batch[key] != pad_id).reshape(-1, batch[key].shape[-1]).any(axis=0))
        for key in TEXTS
        if key in batch
    ]
    longest = max((int(end[-1]) + 1 for end in ends if len(end)), default=0)
    return min(longest + (pad_id == eos_id), batch["text"].shape[-1])


def with_text_length(batch: Batch, length: int) -> Batch:
    """The batch with the first `length` columns of texts and their marks."""
    names = [f"{text}{more}" for text in TEXTS for more in ("", "_marks")]
    return {key: x[..., :length] if key in names else x for key, x in batch.items()}


def check(batch: Batch) -> None:
    """Raises DataError unless `batch` obeys the contract above; called on the first batch."""
    image = "image_pooled" if "image_pooled" in batch else "image"
    missing = [key for key in (image, *REQUIRED) if key not in batch]
    if missing:
        raise DataError(f"a batch needs the keys {missing}, too; got {list(batch)}")
    sizes = {key: len(array) for key, array in batch.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"all arrays of a batch have the same length; got {sizes}")
    for key, array in batch.items():
        if key not in CONTRACT:
            raise DataError(f"unknown batch key {key!r}; known: {sorted(CONTRACT)}")
        dtypes, axes = CONTRACT[key]
        if array.dtype.name not in dtypes or array.ndim != axes:
            raise DataError(
                f"batch[{key!r}] must be {' or '.join(dtypes)} with {axes} axes; "
                f"got {array.dtype.name} of shape {array.shape}"
            )
    if image == "image" and batch["image"].shape[-1] != 3:
        raise DataError(f"images have 3 channels (RGB); got shape {batch['image'].shape}")
    _check_marks(batch)


def _check_marks(batch: Batch) -> None:
    """Raises DataError unless all texts of a batch have marks, or none has."""
    texts = sorted({"text", "negative_text", "positive_text"} & batch.keys())
    marked = sorted(key.removesuffix("_marks") for key in batch if key.endswith("_marks"))
    if marked and marked != texts:
        raise DataError(f"all texts of a batch have marks, or none; got {marked} of {texts}")
    for key in marked:
        ids, marks = batch[key].shape, batch[f"{key}_marks"].shape
        if ids != marks:
            raise DataError(
                f"batch['{key}_marks'] must have the shape of its ids, {ids}; got {marks}"
            )
