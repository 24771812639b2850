"""Input pipeline: from files and strings to batches of numpy arrays, without JAX.

  source = sources.make_source("records", "train", path="captions.jsonl", image_folder="images")
  tokenizer = tokenizers.make_tokenizer("clip", 77, path="bpe_simple_vocab_16e6.txt.gz")
  transform = images.image_ops.ImageTransform(224)
  print(loader.inspection.preview(source, tokenizer, transform))
  with loader.loader.make_train(source, tokenizer, transform, batch_size=256, seed=0) as batches:
      for batch in batches: ...

record, batch and case are the contracts. Nothing is imported here: a contract needs no reader.
"""
