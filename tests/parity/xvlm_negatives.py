"""Pairs of images and texts of xvlm_reference.py, by index, and their negatives in training."""

# the first and the last have the same image
PAIRS, TEXT_NEGATIVES, IMAGE_NEGATIVES = [0, 1, 2, 0], [1, 3, 0, 2], [2, 0, 1, 1]
