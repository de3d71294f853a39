"""Tests of `relaxvm.serve`."""
