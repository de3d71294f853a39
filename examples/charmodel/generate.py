"""Write text with a character model that `train.py` has saved.

    python examples/charmodel/generate.py [FILE] [--prompt TEXT] [--length N]
                                          [--temperature T] [--seed N] [--time]

One call writes the whole text: the loop over the characters is in the program.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from text import decode, encode

import relaxvm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", default="charmodel.vmexec", metavar="FILE")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what the text begins with")
    parser.add_argument("--length", type=int, default=400, metavar="N", help="of the rest")
    parser.add_argument("--temperature", type=float, default=0.5, metavar="T", help="0: no chance")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--time", action="store_true", help="say how fast it was")
    args = parser.parse_args()

    vm = relaxvm.VirtualMachine(relaxvm.load(args.file))
    prompt = encode("\n" + args.prompt)[None]  # a text starts at the start of a line
    uniforms = np.random.default_rng(args.seed).random((1, args.length), np.float32)
    temperature = np.array(args.temperature, np.float32)
    started = time.perf_counter()
    text = vm.main(prompt, uniforms, temperature)
    seconds = time.perf_counter() - started
    print(decode(text[0, 1:]))
    if args.time:
        print(f"\n{args.length / seconds:,.0f} characters per second")


if __name__ == "__main__":
    main()
