compiler: str
"""Name and version of the C compiler."""
cython: str
"""Version of Cython."""
debug: bool
"""Whether it is a build for debugging; see ``setup.py``."""
