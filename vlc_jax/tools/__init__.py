"""Command lines beside the main one: vlc-jax NAME --help."""
