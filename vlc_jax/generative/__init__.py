"""Generative models at work: texts decoded from them, and scored by their probability."""
