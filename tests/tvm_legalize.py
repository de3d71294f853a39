"""apache-tvm's side of the comparison of legalized programs: it writes, for each of
`legalize_programs.PROGRAMS`, the texts of the functions by name.

    python -m tests.tvm_legalize OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .legalize_programs import PROGRAMS


def main() -> None:
    import tvm
    from tvm import relax

    found = {}
    for name, text in PROGRAMS.items():
        mod = relax.transform.LegalizeOps()(tvm.script.from_source(text))
        found[name] = {gvar.name_hint: mod[gvar].script() for gvar in mod.get_global_vars()}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
