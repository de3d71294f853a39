"""Predicts the chemical shifts of a helix and a strand, with caustic-nmr: a network on a graph."""

import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
from caustic import predict_shifts_onnx

SEQUENCE = "ALA LEU GLU LYS SER VAL GLY ASP PHE ARG THR ILE ASN GLN TRP MET HIS TYR PRO CYS"
HELIX, STRAND = (-57, -47), (-120, 130)


def placed(a: np.ndarray, b: np.ndarray, c: np.ndarray, *how: float) -> np.ndarray:
    """An atom behind three others: by the length of the bond, its angle, and the torsion."""
    length, angle, torsion = how[0], np.radians(how[1]), np.radians(how[2])
    along = (c - b) / np.linalg.norm(c - b)
    normal = np.cross(b - a, along)
    normal /= np.linalg.norm(normal)
    across = np.cos(torsion) * np.cross(normal, along) + np.sin(torsion) * normal
    return c + length * (np.sin(angle) * across - np.cos(angle) * along)


n, ca, c = np.zeros(3), np.array([1.458, 0, 0]), np.array([2.004, 1.424, 0])
turn = 0
lines: list[str] = []
for number, residue in enumerate(SEQUENCE.split(), 1):
    phi, psi = HELIX if number <= 12 else STRAND
    if number > 1:
        old, n = ca, placed(n, ca, c, 1.329, 116.6, turn)
        ca = placed(old, c, n, 1.458, 121.7, 180)
        c = placed(c, n, ca, 1.525, 111, phi)
    atoms = {"N": n, "CA": ca, "C": c, "O": placed(n, ca, c, 1.231, 120.4, psi + 180)}
    if residue != "GLY":
        atoms["CB"] = placed(c, n, ca, 1.53, 110.5, -122.5)
    for name, (x, y, z) in atoms.items():
        lines.append(
            f"ATOM  {len(lines) + 1:5d}  {name:<3s} {residue} A{number:4d}    "
            f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00 20.00           {name[0]}"
        )
    turn = psi
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "drawn.pdb"
    path.write_text("\n".join([*lines, "TER", "END", ""]), encoding="ascii")
    found = predict_shifts_onnx(path, files("caustic") / "data" / "best_v2_carbons.onnx")
for nucleus, shifts in found.mean.items():
    print(nucleus, "none" if shifts is None else [f"{shift:.2f}" for shift in shifts])
