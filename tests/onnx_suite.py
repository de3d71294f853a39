"""The test-suite of the ONNX standard, run by relaxvm: ``python -m tests.onnx_suite [PATTERN]``.

A case is right if all outputs have the data types, shapes and elements that it states, within its
tolerances; refused if relaxvm says, when it imports or builds the model, that it does not support
something; else wrong.  Of operators that make random numbers, which the standard leaves to each
implementation, only data types, shapes and the range of the elements are compared.

With ``--known ranks`` the models do not say how long the axes of their inputs are, with
``--known nothing`` not even how many axes there are: then only the run knows it.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from relaxvm import backend
from relaxvm.errors import RelaxVMError

__all__ = ["PAGE", "Outcome", "cases", "page", "run", "with_known"]

PAGE = Path(__file__).parent.parent / "docs" / "onnx-conformance.md"

KINDS = "node", "simple", "pytorch-operator", "pytorch-converted"
RANDOM = {"Bernoulli", "RandomUniformLike"}
"""Operators of the suite whose numbers are random: in all its cases elements are 0 or 1."""
PROTOS = {
    "tensor": onnx.TensorProto,
    "sequence": onnx.SequenceProto,
    "optional": onnx.OptionalProto,
}


class Outcome(NamedTuple):
    """What came of a case: "right", "refused" or "wrong", and the message."""

    name: str
    operators: tuple[str, ...]
    verdict: str
    message: str


def cases(pattern: str = "") -> Iterator[Any]:
    """The cases whose names match a pattern."""
    for kind in KINDS:
        for case in load_model_tests(kind=kind):
            if re.search(pattern, case.name):
                yield case


def model_of(case: Any) -> Any:
    if case.model is not None:
        return case.model
    return onnx.load(Path(case.model_dir) / "model.onnx")


def data_of(case: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and outputs of each data set."""
    if case.data_sets is not None:
        return [([value_of(v) for v in ins], [value_of(v) for v in outs])
                for ins, outs in case.data_sets]  # fmt: skip
    found = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        pair = []
        for name, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(folder.glob(f"{name}_*.pb")))
            pair.append([read(folder / f"{name}_{i}.pb", values[i].type) for i in range(count)])
        found.append((pair[0], pair[1]))
    return found


def read(path: Path, ty: Any) -> Any:
    which = ty.WhichOneof("value").removesuffix("_type")
    proto = PROTOS[which]()
    proto.ParseFromString(path.read_bytes())
    return value_of(proto)


def value_of(value: Any) -> Any:
    """A value of a case as one of relaxvm."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return tuple(value_of(item) for item in numpy_helper.to_list(value))
    if isinstance(value, onnx.OptionalProto):
        found = numpy_helper.to_optional(value)
        return None if found is None else value_of(found)
    if isinstance(value, list):
        return tuple(value_of(item) for item in value)
    return value if value is None or isinstance(value, (dict, tuple)) else np.asarray(value)


def same(got: Any, want: Any, case: Any) -> None:
    """Raise unless a result is as a case states it."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple), f"expected a sequence, got {type(got).__name__}"
        assert len(got) == len(want), f"expected {len(want)} elements, got {len(got)}"
        for a, b in zip(got, want, strict=True):
            same(a, b, case)
        return
    if want is None:
        assert got is None
        return
    assert isinstance(got, np.ndarray), f"expected a tensor, got {type(got).__name__}"
    assert got.dtype == want.dtype, f"expected {want.dtype}, got {got.dtype}"
    assert got.shape == want.shape, f"expected the shape {want.shape}, got {got.shape}"
    if case.model is not None and RANDOM & {node.op_type for node in case.model.graph.node}:
        assert np.isin(got, (0, 1)).all(), f"expected 0 and 1, got {got.tolist()}"
        return
    if want.dtype.kind in "OUT":
        assert got.tolist() == want.tolist(), f"expected {want.tolist()}, got {got.tolist()}"
        return
    if want.dtype.kind not in "biuf":
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol)


def with_known(model: Any, known: str) -> Any:
    """A model that states of its inputs and outputs only the ranks, or nothing, of their shapes."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    constants = {each.name for each in found.graph.initializer}
    for value in (*found.graph.input, *found.graph.output):
        if value.name in constants or not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        if known == "nothing":
            tensor.ClearField("shape")
        else:
            for dim in tensor.shape.dim:
                dim.Clear()
    del found.graph.value_info[:]
    return found


def run(case: Any, known: str = "shapes") -> Outcome:
    """Run a case.

    Args:
        case: of the suite.
        known: what the model states: its shapes, or see `with_known`.
    """
    model = model_of(case)
    stated = model if known == "shapes" else with_known(model, known)
    operators = tuple(sorted({node.op_type for node in model.graph.node}))
    try:
        prepared = backend.prepare(stated)
    except RelaxVMError as error:
        return Outcome(case.name, operators, "refused", str(error))
    except Exception as error:  # whatever it is: the case is wrong
        return Outcome(case.name, operators, "wrong", f"{type(error).__name__}: {error}")
    try:
        for inputs, outputs in data_of(case, model):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = prepared.run(inputs)
            assert len(results) == len(outputs)
            for got, want in zip(results, outputs, strict=True):
                same(got, want, case)
    except Exception as error:
        return Outcome(case.name, operators, "wrong", f"{type(error).__name__}: {error}")
    return Outcome(case.name, operators, "right", "")


HEAD = """\
<!-- generated by python -m tests.onnx_suite --page - do not edit -->

# Conformance to ONNX

The cases of the test-suite of the ONNX standard, `onnx.backend.test` of onnx {version}, by the
operators in their models: {right:,} of {total:,} have the right results, within the
tolerances that they state, {refused} are refused when the model is imported, and {wrong} are wrong.
A case with several operators counts for each. The nine cases that need Pillow to make their
inputs, and those that download models, are not among them. `python -m tests.onnx_suite` runs
the suite; see [ONNX models](onnx.md).

| operator | cases | right | refused |
|---|---|---|---|
"""


def page(outcomes: list[Outcome]) -> str:
    """The page docs/onnx-conformance.md."""
    rows: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for operator in outcome.operators:
            rows.setdefault(operator, Counter())[outcome.verdict] += 1
    all_of = Counter(outcome.verdict for outcome in outcomes)
    head = HEAD.format(
        version=onnx.__version__, total=len(outcomes), right=all_of["right"],
        refused=all_of["refused"], wrong=all_of["wrong"] or "none",
    )  # fmt: skip
    lines = [
        f"| {name} | {counts.total()} | {counts['right']} | {counts['refused'] or ''} |\n"
        for name, counts in sorted(rows.items())
    ]
    return head + "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="of names of cases")
    parser.add_argument("--json", action="store_true", help="print each outcome as JSON")
    parser.add_argument("--known", choices=["shapes", "ranks", "nothing"], default="shapes")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    args = parser.parse_args()
    if args.page and (args.pattern or args.known != "shapes"):
        parser.error("--page is for all cases, as they are")
    counts: Counter[str] = Counter()
    outcomes = []
    for case in cases(args.pattern):
        outcome = run(case, args.known)
        outcomes.append(outcome)
        counts[outcome.verdict] += 1
        if args.json:
            print(json.dumps(outcome._asdict()))
        elif outcome.verdict == "wrong":
            print(f"{outcome.name}: {outcome.message[:300]}")
    if args.page:
        PAGE.write_text(page(outcomes))
    if not args.json:
        print(f"onnx {onnx.__version__}: {dict(counts)} of {counts.total()}")


if __name__ == "__main__":
    main()
