"""Programs as JSON: `save_json` and `load_json`.

The text is an object::

    {"format": "relaxvm-ir", "version": 1, "root": VALUE, "nodes": [NODE, ...], "files": [...]}

A NODE is an object with the class of the node ("is") and its parts by name; parts that are None are
left out.  A reference to another node is ``{"node": index}``, so that sharing is preserved and a
variable stays the same object; a node refers only to nodes before it.  Of other values null, true,
false, numbers and strings are written as themselves, a tuple as an array, and the rest as an object
with one of these keys:

    {"list": [...]}  {"dict": [[key, value], ...]}  {"attrs": [[name, value], ...]}
    {"float": "hexadecimal bits"}  if not finite
    {"array": "base64 of the bytes, C order, little endian", "dtype": "float32", "shape": [2, 3]}
    {"bytes": "base64"}  {"dtype": "float32"}

Equal programs in equal order give equal text.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import math
import struct
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np

from ..core.checkpoints import BYTES_PER_BLOCK, check_objects, checkpoint
from ..dtypes import as_dtype, dtype_name
from ..errors import ExprSizeError, FormatError, TypeSizeError, did_you_mean
from ..executable.debug_info import Span
from ..limits import Limits
from .adt import NEVER, GlobalTypeVar, NeverType, RefType, TypeCall, TypeData
from .expr import ANY, AnyType, FuncType, GlobalVar, PrimType, TupleType, Type, Var, prim_type
from .json_checks import check_node
from .module import IRModule
from .nesting import with_headroom
from .node import Attrs, Node, node_classes
from .op import Op
from .parts import count_parts
from .sharing import LEAST_WALK, MOST_SHARING

__all__ = ["load_json", "save_json"]

FORMAT: Final = "relaxvm-ir"
VERSION: Final = 1

@with_headroom("save_json")
def save_json(node: Any, *, spans: bool = True) -> str:
    """Return a node, or an attribute value, as JSON text.

    Args:
        spans: whether to save the source locations of nodes.

    Raises:
        TypeError: it contains something that is neither a node nor plain data.
    """
    writer = _Writer(spans)
    root = writer.value(node, "root")
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "root": root}
    document["nodes"] = writer.nodes
    if writer.files:
        document["files"] = list(writer.files)
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def load_json(json_str: str, *, limits: Limits | None = None) -> Any:
    """Return the node or value that was saved by `save_json`; its nodes are new objects.

    Args:
        limits: bounds for a text of unknown origin: `file_bytes` of the text, `wall_time`, and
            `live_bytes` and `alloc_bytes` of memory.

    Raises:
        LimitError: a limit is reached.
        FormatError: the text is not in the format that `save_json` writes; says where.  Or the
            program has so much sharing that walks would take too long, see `MOST_SHARING`.
        MissingExtraError: a data type needs an optional package.
    """
    if limits is None:
        return _load(json_str)
    from ..vm.limited import run_limited

    run: Any = run_limited(lambda: _load(json_str, limits), limits, "load_json")
    return run


@with_headroom("load_json")
def _load(text: str, limits: Limits | None = None) -> Any:
    if limits is not None:
        limits.check("file_bytes", len(text), "load_json")
        # Each value, key and element is one object or two.
        objects = sum(map(text.count, ",:[{")) + 1
        check_objects(len(text) + 2 * BYTES_PER_BLOCK * objects, "load_json: parsing the text")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise FormatError("not a program: nested too deeply") from None
    return _Reader(document).root()


# Parts of a class


def _all_slots(cls: type) -> Iterator[str]:
    for base in reversed(cls.__mro__):
        for slot in base.__dict__.get("__slots__", ()):
            if not slot.startswith("_") and slot != "span":
                yield slot


_PARTS: Final[dict[type, tuple[str, ...]]] = {}


def _parts(cls: type[Node]) -> tuple[str, ...]:
    """Names of the saved parts of a class: `FIELDS` in order, then others, such as inferred types.
    """
    found = _PARTS.get(cls)
    if found is None:
        others = [slot for slot in _all_slots(cls) if slot not in cls.FIELDS]
        found = _PARTS[cls] = (*cls.FIELDS, *others)
    if cls is Op:
        return ("name",)
    return found


_HINTS: Final[dict[type, dict[str, Any]]] = {}


def _hints(cls: type[Node]) -> dict[str, Any]:
    """The type annotations of the parts of a class; an unannotated part may be anything."""
    found = _HINTS.get(cls)
    if found is None:
        found = _HINTS[cls] = {}
        classes = node_classes()
        for base in reversed(cls.__mro__):
            scope = vars(sys.modules[base.__module__])
            for name, hint in inspect.get_annotations(base).items():
                if name in _parts(cls):
                    found[name] = eval(hint, scope, classes) if isinstance(hint, str) else hint
        if found.get("ty") is Any:
            found["ty"] = Type | None
    return found


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value matches an annotation: its class and those of its elements."""
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if hint is None:
        return value is None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin or hint, "__value__"):  # a ``type`` statement; numpy has NDArray so
        return _fits(value, (origin or hint).__value__)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[-1:] == (Ellipsis,):
            return all(_fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(_fits, value, args))
    if origin is list:
        return isinstance(value, list) and all(_fits(item, args[0]) for item in value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, origin) and all(
            _fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items()
        )
    if origin is not None:
        return isinstance(value, origin)
    if hint is bool:
        return type(value) is bool
    if hint is int:
        return type(value) is int
    if hint is float:
        return type(value) is float
    return isinstance(value, hint)


# Writing


class _Writer:
    """Writes nodes, each after the nodes that it refers to."""

    def __init__(self, spans: bool) -> None:
        self.spans = spans
        self.nodes: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}
        self.files: dict[str, int] = {}

    def value(self, value: Any, path: str) -> Any:
        """Write the nodes in a value, then return the JSON of the value."""
        self.write_nodes(value, path)
        return self.encode(value, path)

    def write_nodes(self, value: Any, path: str) -> None:
        """Write all nodes in a value.  A stack instead of recursion, for long chains of scalars."""
        work: list[tuple[Any, str, bool]] = [(value, path, False)]
        while work:
            x, place, ready = work.pop()
            if isinstance(x, Node):
                if id(x) in self.numbers:
                    continue
                checkpoint()
                if ready:
                    written = self.node(x, place)
                    self.numbers[id(x)] = len(self.nodes)
                    self.nodes.append(written)
                    continue
                work.append((x, place, True))
                parts = [(getattr(x, name), f"{place}.{name}", False) for name in _parts(x.KIND)]
                work += reversed(parts)
            elif isinstance(x, (tuple, list)):
                work += [(x[i], f"{place}[{i}]", False) for i in reversed(range(len(x)))]
            elif isinstance(x, Mapping):
                for key in reversed(x):
                    work += ((x[key], f"{place}[{key!r}]", False), (key, f"{place} key", False))

    def node(self, node: Node, path: str) -> dict[str, Any]:
        kind = node.KIND
        if node_classes().get(kind.__name__) is not kind:
            raise TypeError(f"{path}: {kind.__name__} is not a public class of nodes")
        written: dict[str, Any] = {"is": kind.__name__}
        for name in _parts(kind):
            value = getattr(node, name)
            if value is not None and not (name in kind.DEFAULTS and value == kind.DEFAULTS[name]):
                written[name] = self.encode(value, f"{path}.{name}")
        span = node.span
        if self.spans and isinstance(span, Span):
            file = self.files.setdefault(span.file, len(self.files))
            written["span"] = [file, span.line, span.column, span.end_line, span.end_column]
        return written

    def encode(self, value: Any, path: str) -> Any:
        if isinstance(value, Node):
            return {"node": self.numbers[id(value)]}
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return (
                float(value) if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
            )
        if isinstance(value, tuple):
            return [self.encode(x, f"{path}[{i}]") for i, x in enumerate(value)]
        if isinstance(value, list):
            return {"list": [self.encode(x, f"{path}[{i}]") for i, x in enumerate(value)]}
        if isinstance(value, Mapping):
            key = "attrs" if isinstance(value, Attrs) else "dict"
            return {
                key: [
                    [self.encode(k, path), self.encode(v, f"{path}[{k!r}]")]
                    for k, v in value.items()
                ]
            }
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _encode_array(value)
        if isinstance(value, bytes):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, np.dtype):
            return {"dtype": dtype_name(value)}
        raise TypeError(f"{path}: a {type(value).__name__} cannot be saved as JSON")


def _encode_array(array: Any) -> dict[str, Any]:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {
        "array": base64.b64encode(little.tobytes()).decode(),
        "dtype": dtype_name(array.dtype),
        "shape": list(array.shape),
    }


# Reading


class _Reader:
    """Builds nodes and checks that every part is present, known and of an allowed class."""

    def __init__(self, document: Any) -> None:
        expect(isinstance(document, dict), "the text", "an object", document)
        found = document.get("format")
        expect(found == FORMAT, "format", repr(FORMAT), found)
        version = document.get("version")
        expect(type(version) is int, "version", "a number", version)
        if version > VERSION:
            raise FormatError(f"version: {version} is newer than {VERSION}, the newest known here")
        expect(version > 0, "version", "a number from 1 on", version)
        _known_keys(document, ("format", "version", "root", "nodes", "files"), "the text")
        self.document = document
        self.files = document.get("files", [])
        strings = isinstance(self.files, list) and all(isinstance(x, str) for x in self.files)
        expect(strings, "files", "an array of strings", self.files)
        self.nodes: list[Node] = []
        self.sizes: list[int] = []
        """For each node, how many nodes a walk of it visits; a use of a variable counts as one."""
        self.size = 0
        self.types_size = 0
        """The same for the types of all variables, which are visited at their definitions."""
        self.classes = node_classes()

    def root(self) -> Any:
        nodes = self.document.get("nodes")
        expect(isinstance(nodes, list), "nodes", "an array", nodes)
        for index, written in enumerate(nodes):
            checkpoint()
            self.size = 1
            node = self.node(written, f"nodes[{index}]")
            if isinstance(node, (Var, GlobalVar, Op)):
                self.types_size += self.size
                self.size = 1
            self.nodes.append(node)
            self.sizes.append(min(self.size, 1 << 62))
        if "root" not in self.document:
            raise FormatError("root: missing")
        self.size = self.types_size
        root = self.decode(self.document["root"], "root")
        self.check_size(self.size)
        return root

    def check_size(self, visits: int) -> None:
        """Check how many nodes a walk visits."""
        count = len(self.document["nodes"])
        if visits > LEAST_WALK + MOST_SHARING * count:
            shown = visits if visits < 1 << 62 else "more than 2**62"
            raise FormatError(
                f"nodes: the program has {count} nodes, but so much sharing that a walk visits "
                f"{shown}; bind values that are used more than once to variables"
            )

    def node(self, written: Any, path: str) -> Node:
        expect(isinstance(written, dict), path, "an object", written)
        name = written.get("is")
        cls = self.class_of(name) if isinstance(name, str) else None
        if cls is None or cls.__init__ is object.__init__:
            hint = did_you_mean(str(name), self.classes)
            raise FormatError(f"{path}.is: unknown class {name!r}{hint}")
        path = f"{path} ({name})"
        parts = _parts(cls)
        _known_keys(written, ("is", "span", *parts), path)
        values = {part: self.part(cls, part, written.get(part), path) for part in parts}
        self.check_size(self.size)  # before a message shows the node
        span = self.span(written["span"], f"{path}.span") if "span" in written else None
        return _make(cls, values, span, path)

    def class_of(self, name: str) -> type[Node] | None:
        if name not in self.classes:
            from .. import tir  # noqa: F401  (its classes are known when it has been imported)

            self.classes = node_classes()
        return self.classes.get(name)

    def part(self, cls: type[Node], name: str, written: Any, path: str) -> Any:
        place = f"{path}.{name}"
        value = self.decode(written, place)
        if value is None:
            value = cls.DEFAULTS.get(name)
        hint = _hints(cls).get(name, Any)
        if isinstance(hint, type) and issubclass(hint, IntEnum):
            if type(value) is not int or value not in set(hint):
                raise FormatError(f"{place}: expected a {hint.__name__}, got {_brief(written)}")
            return hint(value)
        if not _fits(value, hint):
            wanted = getattr(hint, "__name__", None) if isinstance(hint, type) else None
            raise FormatError(f"{place}: expected {wanted or hint}, got {_described(value)}")
        return value

    def span(self, written: Any, path: str) -> Span:
        good = (
            isinstance(written, list)
            and len(written) == 5
            and all(type(x) is int and 0 <= x < 2**31 for x in written)
        )
        expect(good, path, "five numbers", written)
        file, *numbers = written
        expect(file < len(self.files), path, f"a file below {len(self.files)}", file)
        return Span(self.files[file], *numbers)

    def decode(self, written: Any, path: str) -> Any:
        if written is None or isinstance(written, (bool, int, float, str)):
            return written
        if isinstance(written, list):
            return tuple([self.decode(x, f"{path}[{i}]") for i, x in enumerate(written)])
        key = next(iter(written), "")
        decode = _DECODERS.get(key)
        if decode is None:
            raise FormatError(f"{path}: expected a value, got an object of key {key!r}")
        _known_keys(written, _KEYS.get(key, (key,)), path)
        return decode(self, written, path)

    def decode_reference(self, written: Any, path: str) -> Node:
        index = written["node"]
        known = type(index) is int and 0 <= index < len(self.nodes)
        expect(known, path, f"a node before this one, below {len(self.nodes)}", index)
        node: Node = self.nodes[index]
        self.size += self.sizes[index]
        return node

    def decode_list(self, written: Any, path: str) -> list[Any]:
        items = written["list"]
        expect(isinstance(items, list), path, "an array", items)
        return [self.decode(x, f"{path}[{i}]") for i, x in enumerate(items)]

    def items(self, written: Any, path: str) -> Iterator[tuple[Any, Any]]:
        expect(isinstance(written, list), path, "an array of pairs", written)
        for i, pair in enumerate(written):
            good = isinstance(pair, list) and len(pair) == 2
            expect(good, f"{path}[{i}]", "a pair", pair)
            yield self.decode(pair[0], f"{path}[{i}][0]"), self.decode(pair[1], f"{path}[{i}][1]")

    def decode_dict(self, written: Any, path: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in self.items(written["dict"], path):
            try:
                repeated = key in found
            except TypeError:
                raise FormatError(f"{path}: {_described(key)} cannot be a key") from None
            if repeated:
                raise FormatError(f"{path}: key {_brief(key)} appears twice")
            found[key] = value
        return found

    def decode_attrs(self, written: Any, path: str) -> Attrs:
        found = Attrs()
        for key, value in self.items(written["attrs"], path):
            expect(isinstance(key, str), path, "names", key)
            if key in found:
                raise FormatError(f"{path}: attribute {key!r} appears twice")
            found[key] = value
        return found

    def decode_float(self, written: Any, path: str) -> float:
        bits = written["float"]
        try:
            (value,) = struct.unpack(">d", bytes.fromhex(bits))
        except (TypeError, ValueError, struct.error):
            raise FormatError(
                f"{path}: expected 16 hexadecimal digits, got {_brief(bits)}"
            ) from None
        return float(value)

    def decode_bytes(self, written: Any, path: str) -> bytes:
        return _decode_base64(written["bytes"], path)

    def decode_dtype(self, written: Any, path: str) -> np.dtype[Any]:
        return _decode_dtype(written["dtype"], path)

    def decode_array(self, written: Any, path: str) -> np.ndarray[Any, Any]:
        dtype = _decode_dtype(written.get("dtype"), f"{path}.dtype")
        shape = written.get("shape")
        good = isinstance(shape, list) and all(type(x) is int and x >= 0 for x in shape)
        expect(good, f"{path}.shape", "an array of sizes", shape)
        data = _decode_base64(written["array"], path)
        size = math.prod(shape) * dtype.itemsize
        if len(data) != size:
            raise FormatError(f"{path}: expected {size} bytes, got {len(data)}")
        array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
        return array.astype(dtype, copy=False)


_Decode = Callable[[_Reader, Any, str], Any]

_DECODERS: Final[dict[str, _Decode]] = {
    "node": _Reader.decode_reference,
    "list": _Reader.decode_list,
    "dict": _Reader.decode_dict,
    "attrs": _Reader.decode_attrs,
    "float": _Reader.decode_float,
    "array": _Reader.decode_array,
    "bytes": _Reader.decode_bytes,
    "dtype": _Reader.decode_dtype,
}

_KEYS: Final = {"array": ("array", "dtype", "shape")}


def expect(good: bool, path: str, wanted: str, got: Any) -> None:
    if not good:
        raise FormatError(f"{path}: expected {wanted}, got {_brief(got)}")


def _known_keys(written: dict[str, Any], known: tuple[str, ...], path: str) -> None:
    unknown = sorted(set(written) - set(known))
    if unknown:
        raise FormatError(f"{path}: unknown {', '.join(map(repr, unknown))}")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _described(value: Any) -> str:
    plain = value is None or isinstance(value, (bool, int, float, str))
    return _brief(value) if plain else f"a {type(value).__name__}"


def _decode_base64(text: Any, path: str) -> bytes:
    expect(isinstance(text, str), path, "base64", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{path}: not base64: {error}") from None


def _decode_dtype(name: Any, path: str) -> np.dtype[Any]:
    expect(isinstance(name, str), path, "the name of a data type", name)
    try:
        dtype: np.dtype[Any] = as_dtype(name)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: {error}") from None
    expect(not dtype.hasobject, path, "a data type of numbers", name)
    return dtype


_CONSTRUCTED: Final = frozenset({TupleType, FuncType, IRModule, GlobalTypeVar, TypeCall, RefType,
                                 TypeData})  # fmt: skip
"""Classes whose constructors make nodes from their parts; of others the parts are set."""


def _make(cls: type[Any], values: dict[str, Any], span: Span | None, path: str) -> Node:
    """Create a node from its parts."""
    if cls is Op:
        try:
            return Op.get(values["name"])
        except (ValueError, TypeError) as error:
            raise FormatError(f"{path}: {error}") from None
    if cls not in _CONSTRUCTED:
        check_node(cls, values, path)
    if span is None:
        # Types that exist once per data type; comparisons rely on their identity.
        if cls is PrimType:
            return prim_type(values["dtype"])
        if cls is AnyType:
            return ANY
        if cls is NeverType:
            return NEVER
    if cls in _CONSTRUCTED and cls is not IRModule:
        try:
            node: Node = cls(**values, span=span)
            return node
        except (TypeSizeError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: {error}") from None
    if cls is IRModule:
        try:
            module = IRModule(values["functions"], values["attrs"], values["global_infos"],
                              values["type_definitions"])  # fmt: skip
        except ValueError as error:
            raise FormatError(f"{path}.functions: {error}") from None
        return _fill(module, {"sources": values["sources"]}, span)
    try:
        return _fill(object.__new__(cls), values, span)
    except ExprSizeError as error:
        raise FormatError(f"{path}: {error}") from None


def _fill(node: Node, values: dict[str, Any], span: Span | None) -> Node:
    node.span = span
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        setattr(node, name, value)
    count_parts(node)
    return node
