"""Comparisons with PyTorch, where it is installed: architectures and single operators."""
