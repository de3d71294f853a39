"""Pictures of programs and profiles: each is one page of HTML, or SVG, that needs no network.

`relaxvm.graph` draws the data flow of a function, `relaxvm.memory_plan` the storages over its
instructions, and `Profile.timeline` the calls over time.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from ..messages import readable

__all__ = ["Edge", "Graph", "MemoryPlan", "Node", "Storage", "Timeline"]

_FONT: Final = "font-family='ui-monospace, monospace' font-size='12'"
_CHARACTER: Final = 7.3
"""Width of a character of this font, in pixels, rounded up."""
_ROW: Final = 62
_GAP: Final = 18
_SIDE: Final = 60
_MOST_LABEL: Final = 34
_COLOURS: Final = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b",
)  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A node of a graph.

    Attributes:
        label: what stands in the box: what is computed.
        detail: the second line: the operation.
        title: what is shown where the pointer is: types, places, times.
        time_ns: of a profile, 0 without.
        kind: "param", "result", "call" or "constant"; decides the shape.
    """

    label: str
    detail: str = ""
    title: str = ""
    time_ns: float = 0.0
    kind: str = "call"


@dataclass(frozen=True)
class Edge:
    """A value that goes from one node to another.

    Attributes:
        source, target: indices of nodes.
        title: what is shown where the pointer is.
    """

    source: int
    target: int
    title: str = ""


class _Picture:
    """What can be saved, and shows itself in a notebook."""

    title: str

    def svg(self) -> str:
        """The picture as SVG."""
        raise NotImplementedError

    def html(self) -> str:
        """The picture as a page of its own."""
        return page(self.title, self._body())

    def _body(self) -> str:
        return f"<div class='picture'>{self.svg()}</div>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it: ``.html``, ``.svg``, or ``.dot`` for a graph.

        Raises:
            ValueError: another suffix.
        """
        name = os.fspath(path)
        forms = {suffix: make for suffix, make in self._forms().items() if name.endswith(suffix)}
        if not forms:
            known = ", ".join(self._forms())
            raise ValueError(f"{name}: expected a name that ends with one of {known}")
        (make,) = forms.values()
        with open(name, "w", encoding="utf-8") as file:
            file.write(make())

    def _forms(self) -> dict[str, Any]:
        return {".html": self.html, ".svg": self.svg}

    def _repr_html_(self) -> str:
        return self._body()


def page(title: str, body: str) -> str:
    """A page of HTML around a picture."""
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(title)}</title>
<style>
body {{ font-family: system-ui, sans-serif; margin: 1rem; color: #222; background: #fff; }}
h1 {{ font-size: 1.1rem; }}
.picture {{ overflow: auto; border: 1px solid #ddd; max-height: 88vh; }}
</style>
<h1>{escape(title)}</h1>
{body}
</html>
"""


@dataclass
class Graph(_Picture):
    """A graph of what a function computes, from top to bottom.

    Attributes:
        title: what it shows.
        nodes: in the order in which they are computed.
        edges: from a node to one after it.
    """

    title: str
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def _forms(self) -> dict[str, Any]:
        return {**super()._forms(), ".dot": self.dot}

    def dot(self) -> str:
        """The graph for ``dot`` of Graphviz."""
        lines = [f"digraph {json.dumps(self.title)} {{",
                 '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=monospace];']
        heat = self._heat()
        for i, node in enumerate(self.nodes):
            label = "\n".join(filter(None, (node.label, node.detail)))
            lines.append(f"  n{i} [label={json.dumps(label)}, tooltip={json.dumps(node.title)}, "
                         f'fillcolor="{heat[i]}"];')  # fmt: skip
        lines += [f"  n{edge.source} -> n{edge.target} [tooltip={json.dumps(edge.title)}];"
                  for edge in self.edges]  # fmt: skip
        return "\n".join([*lines, "}", ""])

    def _heat(self) -> list[str]:
        """A colour per node: from white to red by its time, grey for parameters and results."""
        most = max((node.time_ns for node in self.nodes), default=0.0)
        colours = []
        for node in self.nodes:
            if node.kind in ("param", "result", "constant"):
                colours.append("#eef2f7")
            elif most <= 0:
                colours.append("#ffffff")
            else:
                part = math.sqrt(node.time_ns / most)
                colours.append(f"#ff{round(250 - 150 * part):02x}{round(245 - 185 * part):02x}")
        return colours

    def svg(self) -> str:
        """The picture, laid out in layers: a node is below all that it takes."""
        places, widths, width, height = self._layout()
        heat = self._heat()
        out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
               f"viewBox='0 0 {width:.0f} {height:.0f}' {_FONT}>",
               "<defs><marker id='arrow' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='6' "
               "markerHeight='6' orient='auto'><path d='M0 0L8 4L0 8z' fill='#888'/></marker>"
               "</defs>"]
        for edge in self.edges:
            x1, y1 = places[edge.source]
            x2, y2 = places[edge.target]
            top, bottom = y1 + 38, y2
            bend = (top + bottom) / 2
            a, b, side = bend, bend, 0.0
            if bottom - top > _ROW:  # around the boxes between
                a, b = top + _ROW, bottom - _ROW
                side = _SIDE + widths[edge.target] / 2
            out.append(f"<path d='M{x1:.0f} {top:.0f}C{x1 + side:.0f} {a:.0f} "
                       f"{x2 + side:.0f} {b:.0f} {x2:.0f} {bottom:.0f}' fill='none' "
                       "stroke='#aaa' marker-end='url(#arrow)'>"
                       f"<title>{escape(edge.title)}</title></path>")  # fmt: skip
        for i, node in enumerate(self.nodes):
            x, y = places[i]
            radius = 17 if node.kind in ("param", "result") else 4
            out.append(
                f"<g><title>{escape(node.title)}</title>"
                f"<rect x='{x - widths[i] / 2:.0f}' y='{y:.0f}' width='{widths[i]:.0f}' "
                f"height='38' rx='{radius}' fill='{heat[i]}' stroke='#667'/>"
                f"<text x='{x:.0f}' y='{y + (16 if node.detail else 23):.0f}' "
                f"text-anchor='middle'>{escape(_cut(node.label))}</text>"
                + (f"<text x='{x:.0f}' y='{y + 31:.0f}' text-anchor='middle' fill='#667' "
                   f"font-size='11'>{escape(_cut(node.detail))}</text>" if node.detail else "")
                + "</g>")
        return "\n".join([*out, "</svg>"])

    def _layout(self) -> tuple[list[tuple[float, float]], list[float], float, float]:
        """Where the middle of the top of each box is, widths of boxes, and the size of it all."""
        above: list[list[int]] = [[] for _ in self.nodes]
        for edge in self.edges:
            above[edge.target].append(edge.source)
        layer = [0] * len(self.nodes)
        for i, sources in enumerate(above):  # nodes are in order
            layer[i] = 1 + max((layer[s] for s in sources), default=-1)
        for i in reversed(range(len(self.nodes))):  # what nothing is above of, close to its use
            below = [layer[e.target] for e in self.edges if e.source == i] if not above[i] else []
            if below:
                layer[i] = min(below) - 1
        rows: dict[int, list[int]] = {}
        for i, number in enumerate(layer):
            rows.setdefault(number, []).append(i)
        widths = [_CHARACTER * max(len(_cut(n.label)), len(_cut(n.detail))) + 20
                  for n in self.nodes]  # fmt: skip
        x = [0.0] * len(self.nodes)
        for number in sorted(rows):
            row = rows[number]
            wanted = {i: (sum(x[s] for s in above[i]) / len(above[i]) if above[i] else x[i])
                      for i in row}  # fmt: skip
            row.sort(key=lambda i: (wanted[i], i))
            free = -math.inf
            for i in row:
                x[i] = max(wanted[i], free + widths[i] / 2)
                free = x[i] + widths[i] / 2 + _GAP
            shift = sum(wanted[i] - x[i] for i in row) / len(row)
            for i in row:
                x[i] += shift
        left = min((x[i] - widths[i] / 2 for i in range(len(x))), default=0.0)
        right = max((x[i] + widths[i] / 2 for i in range(len(x))), default=0.0)
        first = min(rows, default=0)
        places = [(x[i] - left + _GAP, float((layer[i] - first) * _ROW + _GAP))
                  for i in range(len(x))]  # fmt: skip
        height = float((max(rows, default=0) - first + 1) * _ROW + _GAP)
        return places, widths, right - left + 2 * _GAP + _SIDE, height

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclass(frozen=True)
class Storage:
    """A storage of a plan.

    Attributes:
        name: of its register.
        nbytes: its size.
        first, last: the instructions between which it is held.
        tenants: the tensors in it: name, first and last instruction, and what is shown where the
            pointer is.
    """

    name: str
    nbytes: int
    first: int
    last: int
    tenants: tuple[tuple[str, int, int, str], ...]


@dataclass
class MemoryPlan(_Picture):
    """The storages of a function over its instructions, who shares them, and the peak.

    Attributes:
        title: what it shows.
        storages: in the order of their allocation.
        first, last: the instructions of the function.
    """

    title: str
    storages: list[Storage]
    first: int
    last: int

    def live(self, pc: int) -> int:
        """The bytes of the storages that are held at an instruction."""
        return sum(s.nbytes for s in self.storages if s.first <= pc <= s.last)

    @property
    def peak(self) -> tuple[int, int]:
        """The most bytes that are held, and the first instruction at which they are."""
        points = {s.first for s in self.storages} or {self.first}
        pc = max(sorted(points), key=self.live)
        return self.live(pc), pc

    def svg(self) -> str:
        """The picture: bytes that are held above, and a bar for each storage below."""
        span = max(1, self.last - self.first)
        scale = max(4.0, min(24.0, 1100 / span))
        left, top, row = 150, 150, 24
        width, height = left + scale * (span + 1) + 30, top + row * len(self.storages) + 40
        most, at = self.peak
        out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height}' "
               f"viewBox='0 0 {width:.0f} {height}' {_FONT}>"]

        def x(pc: float) -> float:
            return left + scale * (pc - self.first)

        points = []
        for pc in range(self.first, self.last + 1):
            level = 120 - 100 * self.live(pc) / (most or 1)
            points += [f"{x(pc):.1f},{level:.1f}", f"{x(pc + 1):.1f},{level:.1f}"]
        out.append(f"<polyline points='{x(self.first):.1f},120 {' '.join(points)} "
                   f"{x(self.last + 1):.1f},120' fill='#cfe0f3' stroke='#4c78a8'/>")  # fmt: skip
        middle = x(at + 0.5)
        out.append(f"<line x1='{middle:.1f}' x2='{middle:.1f}' y1='14' y2='{height - 30}' "
                   f"stroke='#e45756' stroke-dasharray='4 3'/><text x='{middle + 4:.1f}' y='14' "
                   f"fill='#e45756'>peak {bytes_text(most)} at pc {at}</text>")  # fmt: skip
        for i, storage in enumerate(self.storages):
            y = top + row * i
            out.append(
                f"<text x='{left - 6}' y='{y + 15}' text-anchor='end'>{escape(storage.name)} "
                f"{bytes_text(storage.nbytes)}</text>"
                f"<rect x='{x(storage.first):.1f}' y='{y}' height='18' "
                f"width='{scale * (storage.last - storage.first + 1):.1f}' fill='#eee'>"
                f"<title>{escape(storage.name)}: {storage.nbytes:,} bytes, pc {storage.first} to "
                f"{storage.last}</title></rect>")  # fmt: skip
            for j, (name, first, last, title) in enumerate(storage.tenants):
                wide = scale * (last - first + 1)
                shown = name if len(name) * _CHARACTER < wide else ""
                out.append(
                    f"<g><title>{escape(title)}</title><rect x='{x(first):.1f}' y='{y}' "
                    f"height='18' width='{wide:.1f}' fill='{_COLOURS[(i + j) % len(_COLOURS)]}' "
                    f"fill-opacity='0.75'/><text x='{x(first) + 3:.1f}' y='{y + 14}' "
                    f"fill='#fff'>{escape(shown)}</text></g>")  # fmt: skip
        step = max(1, 10 ** max(0, math.ceil(math.log10(60 / scale))))
        for pc in range(self.first - self.first % -step, self.last + 1, step):
            out.append(f"<text x='{x(pc):.1f}' y='{height - 12}' fill='#667'>{pc}</text>")
        return "\n".join([*out, "</svg>"])


def bytes_text(nbytes: float) -> str:
    """Bytes in a unit that keeps them below 1024: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} GiB"


def _cut(text: str) -> str:
    return readable(text, _MOST_LABEL)


@dataclass
class Timeline(_Picture):
    """The calls of a profile over time: drag to move, turn the wheel to come closer.

    Attributes:
        title: what it shows.
        lanes: of each thread, its name and its calls: start and end in microseconds, name, title.
    """

    title: str
    lanes: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]]

    def svg(self) -> str:
        """The whole time as SVG, which does not move."""
        end = max((call[1] for _, calls in self.lanes for call in calls), default=1.0) or 1.0
        scale, y, out = 1160 / end, 10, []
        for name, calls in self.lanes:
            out.append(f"<text x='6' y='{y + 12}' font-weight='bold'>{escape(name)}</text>")
            y += 18
            depths = _depths(calls)
            for (start, stop, label, title), depth in zip(calls, depths, strict=True):
                wide = max(0.4, (stop - start) * scale)
                shown = label if len(label) * _CHARACTER < wide else ""
                out.append(
                    f"<g><title>{escape(title)}</title><rect x='{20 + start * scale:.2f}' "
                    f"y='{y + 18 * depth}' width='{wide:.2f}' height='17' "
                    f"fill='{_colour(label)}'/><text x='{23 + start * scale:.2f}' "
                    f"y='{y + 18 * depth + 13}' fill='#fff'>{escape(shown)}</text></g>")
            y += 18 * (max(depths, default=0) + 1) + 10
        return (f"<svg xmlns='http://www.w3.org/2000/svg' width='1200' height='{y + 10}' "
                f"viewBox='0 0 1200 {y + 10}' {_FONT}>" + "\n".join(out) + "</svg>")  # fmt: skip

    def _body(self) -> str:
        lanes = [{"name": name, "calls": [
            [round(start, 3), round(stop, 3), label, title, depth, _colour(label)]
            for (start, stop, label, title), depth in zip(calls, _depths(calls), strict=True)
        ]} for name, calls in self.lanes]  # fmt: skip
        data = json.dumps(lanes).replace("</", "<\\/")
        return (f"<canvas id='calls' style='width:100%'></canvas><pre id='about'> </pre>"
                f"<script>const lanes = {data};\n{_SCRIPT}</script>")  # fmt: skip


def _depths(calls: Iterable[tuple[float, float, str, str]]) -> list[int]:
    """How many calls each is in; they are in the order in which they began."""
    ends: list[float] = []
    depths = []
    for start, stop, _, _ in calls:
        while ends and ends[-1] <= start:
            ends.pop()
        depths.append(len(ends))
        ends.append(stop)
    return depths


def _colour(name: str) -> str:
    return _COLOURS[sum(name.encode()) % len(_COLOURS)]


_SCRIPT: Final = """
const canvas = document.getElementById('calls'), about = document.getElementById('about');
const end = Math.max(1e-3, ...lanes.flatMap(lane => lane.calls.map(call => call[1])));
let from = 0, to = end, boxes = [];
function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  let height = 26;
  for (const lane of lanes) height += 30 + 18 * (1 + Math.max(0, ...lane.calls.map(c => c[4])));
  canvas.style.height = height + 'px';
  canvas.width = width * ratio; canvas.height = height * ratio;
  const g = canvas.getContext('2d'); g.scale(ratio, ratio); g.font = '12px monospace';
  boxes = [];
  const scale = width / (to - from);
  g.fillStyle = '#667';
  for (let i = 0; i <= 8; i++) {
    const t = from + (to - from) * i / 8;
    g.fillText(t.toPrecision(5) + ' us', Math.min(width * i / 8, width - 80), 12);
  }
  let y = 26;
  for (const lane of lanes) {
    g.fillStyle = '#222'; g.fillText(lane.name, 4, y + 11); y += 18;
    let deepest = 0;
    for (const [start, stop, label, title, depth, colour] of lane.calls) {
      deepest = Math.max(deepest, depth);
      if (stop < from || start > to) continue;
      const x = (start - from) * scale, wide = Math.max(0.5, (stop - start) * scale);
      g.fillStyle = colour; g.fillRect(x, y + 18 * depth, wide, 17);
      if (wide > 24) {
        g.save(); g.beginPath(); g.rect(x, y + 18 * depth, wide, 17); g.clip();
        g.fillStyle = '#fff'; g.fillText(label, Math.max(x, 0) + 3, y + 18 * depth + 13);
        g.restore();
      }
      boxes.push([x, y + 18 * depth, wide, title]);
    }
    y += 18 * (deepest + 1) + 12;
  }
}
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const at = from + (to - from) * event.offsetX / canvas.clientWidth;
  const factor = event.deltaY > 0 ? 1.25 : 0.8;
  from = Math.max(0, at - (at - from) * factor); to = Math.min(end, at + (to - at) * factor);
  draw();
}, {passive: false});
canvas.addEventListener('mousemove', event => {
  if (event.buttons) {
    const moved = event.movementX * (to - from) / canvas.clientWidth;
    const shift = Math.max(-from, Math.min(end - to, -moved));
    from += shift; to += shift; draw();
  }
  const box = boxes.findLast(([x, y, wide]) => event.offsetX >= x && event.offsetX <= x + wide
    && event.offsetY >= y && event.offsetY < y + 18);
  about.textContent = box ? box[3] : ' ';
});
canvas.addEventListener('dblclick', () => { from = 0; to = end; draw(); });
window.addEventListener('resize', draw);
draw();
"""

