"""Bridges to other packages, one module per package, which is only needed by that module."""
