"""Bridges to other packages, each in a module of its own that needs its package."""
