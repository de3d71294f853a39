"""Compilation of a program to an executable: `build`, the code generators and the linker."""
