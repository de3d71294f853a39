"""Cases of products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .table import cases, kernel, rounded


def product(x1: Any, x2: Any, out_dtype: str | None = None) -> Any:
    """Sums of products over the common dimension, one element at a time."""
    left = x1[None] if x1.ndim == 1 else x1
    right = x2[:, None] if x2.ndim == 1 else x2
    terms = left[..., :, :, None] * right[..., None, :, :]
    out = np.zeros((*terms.shape[:-2], terms.shape[-1]), terms.dtype)
    for i in range(terms.shape[-2]):
        out = out + terms[..., i, :]
    if x1.ndim == 1:
        out = out[..., 0, :]
    return out[..., 0] if x2.ndim == 1 else out


def summed(operands: Any, subscripts: str) -> Any:
    """Einstein summation by loops over all letters; an ellipsis stands for letters too."""
    text = subscripts.replace(" ", "")
    terms, arrow, result = text.partition("->")
    each = terms.split(",")
    extra = max(
        x.ndim - len(term.replace("...", "")) for x, term in zip(operands, each, strict=True)
    )
    dots = "".join(chr(ord("α") + i) for i in range(extra if "..." in text else 0))
    if not arrow:
        letters = terms.replace("...", "").replace(",", "")
        result = "..." * ("..." in terms) + "".join(
            sorted(c for c in letters if letters.count(c) == 1)
        )
    names = [
        term.replace("...", dots[len(dots) - (x.ndim - len(term.replace("...", ""))) :])
        for x, term in zip(operands, each, strict=True)
    ]
    result = result.replace("...", dots)
    sizes: dict[str, int] = {}
    for x, name in zip(operands, names, strict=True):
        for letter, dim in zip(name, x.shape, strict=True):
            sizes[letter] = dim if sizes.get(letter, 1) == 1 else sizes[letter]
    out = np.zeros([sizes[c] for c in result], operands[0].dtype)
    for index in itertools.product(*map(range, sizes.values())):
        at = dict(zip(sizes, index, strict=True))
        term = 1
        for x, name in zip(operands, names, strict=True):
            place = tuple(min(at[c], n - 1) for c, n in zip(name, x.shape, strict=True))
            term = term * x[place]
        out[tuple(at[c] for c in result)] += term
    return out


cases(
    "matmul",
    """
matmul(f(3, 4), f(4, 5)) | R.Tensor((3, 5), "float32")
matmul(f(n, m), f(m, 5)) | R.Tensor((n, 5), "float32")
# The reduced dimensions are checked when the program runs.
matmul(f(n, m), f(4, 5)) | R.Tensor((n, 5), "float32")
matmul(f(4), f(4, 5)) | R.Tensor((5,), "float32")
matmul(f(n, 4), f(4)) | R.Tensor((n,), "float32")
matmul(f(4), f(4)) | R.Tensor((), "float32")
matmul(f(2, 1, 3, 4), f(n, 4, 5)) | R.Tensor((2, n, 3, 5), "float32")
matmul(f(n, 3, 4), f(m, 4, 5)) | R.Tensor(dtype="float32", ndim=3)
matmul(h(3, 4), h(4, 5), "float32") | R.Tensor((3, 5), "float32")
matmul(rank(2), f(4)) | R.Tensor(dtype="float32", ndim=1)
matmul(tensor(), f(4, 5)) | R.Tensor(dtype="float32")
""",
    """
matmul(f(n, 3), f(4, 5)) | ValueError: relax.matmul: shapes (n, 3) and (4, 5) do not multiply: the
    last dimension of x1 is 3, that of x2 before its last is 4
matmul(f(), f(4, 5)) | ValueError: relax.matmul: x1: expected a tensor of rank 1 or more
matmul(f(2, 3, 4), f(3, 4, 5)) | ValueError: relax.matmul: shapes (2,) and (3,) do not broadcast
matmul(b(2, 2), b(2, 2)) | TypeError: relax.matmul: x1: expected numbers
matmul(f(2, 2), i(2, 2)) | TypeError: relax.matmul: expected operands of one data type
""",
    """
matmul(x(2, 3), x(3, 4))
matmul(x(2, 1, 2, 3), x(5, 3, 4))
matmul(x(3), x(3))
matmul(h(2, 3), h(3, 4), "float32")
matmul(x(3), x(3, 2))
matmul(x(4, 3), x(3))
matmul(x(2, 4, 3), x(3))
matmul(x(3), x(2, 3, 4))
matmul(x(1, 0), x(0, 2))
matmul(x(0, 3), x(3, 3))
matmul(x(33, 65), x(65, 17))
matmul(x(2, 3), permute_dims(x(4, 3)))
matmul(h(2, 3000), h(3000, 2))
matmul(d(1, 1, 64), d(64, 96))
matmul(h(2, 3), h(3, 4), 'float32')
matmul(j(2, 3), j(3, 2), 'float64')
matmul(u(2, 30), u(30, 3), 'int32')
""",
    reference=product,
    odd="""
matmul(f(4, 5), f(5, 3))
""",
    dtypes="fhdiju",
    ulps=rounded(8),
    of_largest=True,
    large="matmul(f(131072, 3), f(3, 3))",
)
cases(
    "linear",
    """
linear(f(n, 4), f(5, 4)) | R.Tensor((n, 5), "float32")
linear(f(n, 4), f(5, 4), f(5)) | R.Tensor((n, 5), "float32")
""",
    """
linear(f(2, 3), f(4, 4)) | ValueError: relax.matmul: shapes (2, 3) and (4, 4) do not multiply
""",
    """
linear(x(2, 3), x(4, 3), x(4))
linear(x(2, 5, 3), x(4, 3))
linear(x(3), x(4, 3), x(4))
linear(x(0, 3), x(4, 3), x(4))
""",
    reference=None,
    dtypes="fhd",
    ulps={"float16": 2, "float32": 8, "float64": 8},
    of_largest=True,
)
cases(
    "einsum",
    """
einsum((f(n, 4), f(4, m)), "ij,jk->ik") | R.Tensor((n, m), "float32")
einsum((f(n, 4), f(4, m)), "ij,jk") | R.Tensor((n, m), "float32")
einsum([f(n, n)], "ii") | R.Tensor((), "float32")
einsum((f(n, 3, 4), f(n, 4, 5)), "...ij, ...jk -> ...ik") | R.Tensor((n, 3, 5), "float32")
einsum((rank(2), f(3)), "ij,j->i") | R.Tensor(dtype="float32", ndim=1)
""",
    """
einsum((f(3), f(4)), "i,i->") | ValueError: relax.einsum: subscripts: 'i' of 'i,i->' is 3 and 4
einsum((f(3),), "i,i->") | ValueError: relax.einsum: subscripts: 'i,i->' is for 2 operands, got 1
einsum((f(3),), "ij->i") | ValueError: relax.einsum: operands[0]: 'ij' does not fit
einsum((f(3),), "i->j") | ValueError: relax.einsum: subscripts: expected each letter of the result
einsum((f(3),), "1->1") | ValueError: relax.einsum: subscripts: expected letters and '...'
""",
    """
einsum((x(2, 3), x(3, 4)), "ij,jk->ki")
einsum((x(5, 2, 3), x(5, 3, 4)), "...ij,...jk")
einsum((x(2, 3), x(3, 4),), "ij,jk->ik")
einsum((x(2, 3), x(3, 4),), "ij,jk")
einsum((x(2, 3),), "ba")
einsum((x(3, 3),), "ii->i")
einsum((x(3, 3),), "ii")
einsum((x(2, 3),), "ij->")
einsum((x(2), x(3),), "i,j->ji")
einsum((x(2, 3), x(1, 3),), "...j,...j")
einsum((x(2, 3, 4), x(2, 5, 4),), "b i d, b j d -> b i j")
einsum((x(2, 3, 4), x(2),), "i...,i->...")
einsum((x(2, 3), x(3, 4), x(4, 2),), "ij,jk,kl->il")
einsum((x(), x(3),), ",i->i")
einsum((x(2, 3), x(1),), "ij,j->i")
einsum((x(2, 0), x(0, 3),), "ij,jk->ik")
einsum((x(2, 3),), "a...->a...")
einsum((x(2, 3), x(3, 4),), "Ab,bC->CA")
""",
    reference=summed,
    dtypes="fdij",
    ulps=rounded(8),
    of_largest=True,
)
kernel(
    "matmul_tn",
    lambda draw: (draw(3, 4), draw(3, 2)),
    lambda a, b: product(a.T, b),
    ulps=8,
    of_largest=True,
)
kernel(
    "linear",
    lambda draw: (draw(3, 3), draw(4, 3), draw(4)),
    lambda x, weight, bias: product(x, weight.T) + bias,
    ulps=8,
    of_largest=True,
)
