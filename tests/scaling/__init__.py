"""Tests of models over tables, and on Dask and Ray."""
