"""Generative models: prompts, token ids, decoding, and the reading of answers."""
