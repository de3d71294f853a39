"""Functions of numpy on large arrays, in pieces: a limit, a cancellation or Ctrl-C ends what takes
long.

What has at most `cut.PIECE` elements is one call of numpy, with its result bit for bit.  Of larger
arrays, sums of floats may differ in their last bits, as they are sums of the pieces' sums.
"""
