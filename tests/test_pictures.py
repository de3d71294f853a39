"""Pictures of programs and profiles."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.observe.pictures import Timeline

from . import children
from .passes import module
from .test_compare_programs import PROGRAM, K, X

PLAN = """
@R.function
def main(x: R.Tensor((64,), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor((64,), "float32"):
    a = R.matmul(x, w)
    b = R.matmul(a, w)
    c = R.matmul(b, w)
    return c
"""  # noqa: E501


@pytest.fixture(scope="module")
def vm() -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(relaxvm.build(module(PROGRAM)))


def labels(graph: Any) -> list[str]:
    return [node.label for node in graph.nodes]


def pairs(graph: Any) -> set[tuple[str, str]]:
    return {(graph.nodes[e.source].label, graph.nodes[e.target].label) for e in graph.edges}


def test_graph_of_ir() -> None:
    graph = relaxvm.graph(module(PROGRAM))
    assert labels(graph) == ["x", "k", "h", "a", "b", "c", "d", "return"]
    assert pairs(graph) == {("x", "h"), ("h", "a"), ("a", "b"), ("b", "c"), ("x", "c"), ("c", "d"),
                            ("k", "d"), ("d", "return")}  # fmt: skip
    details = {node.label: node.detail for node in graph.nodes}
    assert details["h"] == "call of half"
    assert details["a"] == "exp"


def test_graph_of_bytecode_is_that_of_the_ir(vm: relaxvm.VirtualMachine) -> None:
    graph = relaxvm.graph(vm)
    assert labels(graph) == ["x", "k", "h", "a", "b", "c", "d", "return"]
    assert pairs(graph) == pairs(relaxvm.graph(module(PROGRAM)))
    assert pairs(relaxvm.graph(vm.executable, "half")) == {("x", "y"), ("y", "return")}


def test_graph_is_coloured_by_time(vm: relaxvm.VirtualMachine) -> None:
    with relaxvm.profile(vm) as profile:
        vm["main"](X, K)
    graph = relaxvm.graph(vm, profile=profile)
    times = {node.label: node.time_ns for node in graph.nodes}
    assert all(times[name] > 0 for name in "habcd")
    assert times["x"] == 0
    assert graph._heat()[labels(graph).index("x")] == "#eef2f7"
    slowest = max(graph.nodes, key=lambda node: node.time_ns)
    assert graph._heat()[graph.nodes.index(slowest)] == "#ff643c"
    assert " us in all" in slowest.title


def test_branches_of_ir() -> None:
    graph = relaxvm.graph(module("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    if c:
        out = R.exp(x)
    else:
        out = R.sqrt(x)
    return out
"""))
    details = [node.detail for node in graph.nodes]
    assert "exp" in details
    assert "sqrt" in details
    node = details.index("if")
    sources = {graph.nodes[e.source].detail for e in graph.edges if e.target == node}
    assert sources >= {"exp", "sqrt"}


def test_boxes_do_not_overlap() -> None:
    lines = [f"    a{i} = R.exp(x)\n" for i in range(12)]
    total = "".join(f"    s{i} = R.add({'a0' if i == 0 else f's{i - 1}'}, a{i + 1})\n"
                    for i in range(11))  # fmt: skip
    graph = relaxvm.graph(module(f"""
@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
{"".join(lines)}{total}    return s10
"""))
    root = ET.fromstring(graph.svg())
    boxes = [tuple(float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
             for rect in root.iter("{http://www.w3.org/2000/svg}rect")]  # fmt: skip
    assert len(boxes) == len(graph.nodes)
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    places, *_ = graph._layout()
    assert all(places[e.source][1] < places[e.target][1] for e in graph.edges)


def test_files(vm: relaxvm.VirtualMachine, tmp_path: Path) -> None:
    graph = relaxvm.graph(vm)
    for name in ("g.html", "g.svg", "g.dot"):
        graph.save(tmp_path / name)
    page = (tmp_path / "g.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # no network
    ET.fromstring((tmp_path / "g.svg").read_text())
    dot = (tmp_path / "g.dot").read_text()
    assert dot.count("->") == len(graph.edges)
    with pytest.raises(ValueError, match=r"a name that ends with one of .html, .svg, .dot"):
        graph.save(tmp_path / "g.png")
    assert graph._repr_svg_() == graph.svg()
    assert "<svg" in graph._repr_html_()


def test_names_are_escaped() -> None:
    b = relaxvm.ExecBuilder()
    with b.function("main", 1, param_names=["<script>"]):
        b.emit_call("a&b'\"", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    graph = relaxvm.graph(b.get())
    ET.fromstring(graph.svg())
    assert "<script>" not in graph.html()


def test_graph_refuses() -> None:
    with pytest.raises(TypeError, match="graph: expected a module, a function, an executable"):
        relaxvm.graph(3)
    with pytest.raises(TypeError, match="memory_plan: expected an executable or a VM, got int 3"):
        relaxvm.memory_plan(3)


def test_memory_plan() -> None:
    executable = relaxvm.build(module(PLAN))
    plan = relaxvm.memory_plan(executable)
    names = [[tenant[0] for tenant in storage.tenants] for storage in plan.storages]
    assert sorted(name for tenants in names for name in tenants) == ["a", "b", "c"]
    most, at = plan.peak
    assert most == plan.live(at) == max(plan.live(pc) for pc in range(plan.first, plan.last + 1))
    assert most == 512  # two vectors of 64 floats at a time
    ET.fromstring(plan.svg())
    assert f"peak 512 B at pc {at}" in plan.html()


def test_memory_plan_of_symbolic_sizes(vm: relaxvm.VirtualMachine) -> None:
    assert relaxvm.memory_plan(vm).peak[0] == 0
    x = np.ones(1000, np.float32)
    assert relaxvm.memory_plan(vm, "main", x, K).peak[0] >= 4000
    assert relaxvm.memory_plan(vm, "main", x=x, k=K).peak[0] >= 4000


def test_timeline(vm: relaxvm.VirtualMachine, tmp_path: Path) -> None:
    with relaxvm.profile(vm) as profile:
        vm["main"](X, K)
        vm["main"](X, K)
    timeline = profile.timeline()
    ((_, calls),) = timeline.lanes
    assert [call[2] for call in calls].count("half") == 2
    timeline.save(tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    (data,) = re.findall(r"const lanes = (.*);\n", page)
    (lane,) = json.loads(data)
    depths = [(call[2], call[4]) for call in lane["calls"]]
    for place in (("main", 0), ("half", 1), ("relaxvm.kernel.multiply", 2)):
        assert depths.count(place) == 2
    ET.fromstring(timeline.svg())


def test_a_name_cannot_end_the_script() -> None:
    page = Timeline("t", [("thread", [(0.0, 1.0, "</script>", "</script>")])]).html()
    assert page.count("</script>") == 1


def test_profile_in_a_notebook(vm: relaxvm.VirtualMachine) -> None:
    with relaxvm.profile(vm) as profile:
        vm["main"](X, K)
    assert "<details><summary>call sites" in profile._repr_html_()


def test_graph_command(vm: relaxvm.VirtualMachine, tmp_path: Path) -> None:
    vm.executable.save(tmp_path / "m.vmexec")

    def command(*args: str) -> children.CompletedProcess[str]:
        return children.run(
            [sys.executable, "-m", "relaxvm", "graph", str(tmp_path / "m.vmexec"), *args],
            text=True, capture_output=True,
        )  # fmt: skip

    inputs = "--random", "--dim", "n=3"
    for name, options in (("g.html", ()), ("g.dot", inputs), ("m.svg", ("--memory", *inputs)),
                          ("t.html", ("--timeline", *inputs))):  # fmt: skip
        done = command("-o", str(tmp_path / name), *options)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 500
    assert command("-o", str(tmp_path / "g.png")).returncode == 2
    assert "it needs inputs" in command("-o", str(tmp_path / "t.html"), "--timeline").stderr


# Traces


def test_trace(vm: relaxvm.VirtualMachine, tmp_path: Path) -> None:
    trace = relaxvm.trace(vm, "main", X, k=K)
    executable = vm.executable
    assert sorted(trace.pcs.tolist()) == list(range(len(executable)))  # each runs once
    assert trace.complete
    np.testing.assert_array_equal(trace.result, vm["main"](X, K))
    assert set(trace.depths[trace.pcs < executable.function("half").end_instr].tolist()) == {2}
    counts = trace.counts()
    assert counts["ret"] == 2
    assert counts["relaxvm.kernel.multiply"] == 2
    assert sum(counts.values()) == len(trace) == sum(trace.pairs().values()) + 1
    assert trace.pairs()["relaxvm.kernel.multiply", "ret"] >= 1
    assert trace.operations()["ret"] == 2
    trace.save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as arrays:
        np.testing.assert_array_equal(arrays["pcs"], trace.pcs)
        assert arrays["names"][trace.pcs[-1]] == "ret"
    assert repr(trace).startswith(f"{len(trace)} instructions, up to 2 frames deep\n")


def test_trace_is_bounded(vm: relaxvm.VirtualMachine) -> None:
    trace = relaxvm.trace(vm, "main", X, K, most=5)
    assert len(trace) == 5
    assert not trace.complete
    assert trace.result is None
    with pytest.raises(ValueError, match="at least one instruction, got most=0"):
        relaxvm.trace(vm, "main", X, K, most=0)
    with pytest.raises(TypeError, match="trace: expected a VirtualMachine, got int 3"):
        relaxvm.trace(3)
