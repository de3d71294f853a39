"""Tests of relaxvm. A package, so that its tools can run as ``python -m tests.fuzz``."""
