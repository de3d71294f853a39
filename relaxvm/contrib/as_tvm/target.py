"""Targets of TVM, and `build` and `compile`, which take them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...compiler import build as _build
from ...executable import VMExecutable
from ...executable.exec_builder import ExecBuilder
from ...ir import IRModule
from ...values import Device

__all__ = ["Target", "TargetKind", "build", "compile", "detect_target"]

_CPU: Final = ("llvm", "c", "cpu")
_CURRENT: Final = threading.local()


class TargetKind(NamedTuple):
    """The kind of a target."""

    name: str

    def __str__(self) -> str:
        return self.name


class Target:
    """What a program is compiled for, as TVM names it.  relaxvm compiles for the CPU it runs on.

    Args:
        target: a name, such as "llvm"; TVM's JSON, or a mapping with "kind".
        host: accepted and kept.

    Raises:
        TypeError, ValueError: `target` has no kind.
    """

    def __init__(self, target: Any = "llvm", host: Any = None) -> None:
        attrs: dict[str, Any]
        if isinstance(target, Target):
            attrs = target.export()
        elif isinstance(target, Mapping):
            attrs = dict(target)
        elif isinstance(target, str) and target.lstrip().startswith("{"):
            attrs = json.loads(target)
        elif isinstance(target, str) and target.split():
            attrs = _options(target)
        else:
            raise TypeError(f"Target: expected a name or a mapping with 'kind', got {target!r}")
        if "kind" not in attrs:
            raise ValueError(f"Target: expected 'kind', got {sorted(attrs)}")
        self._attrs: dict[str, Any] = attrs
        self.host = None if host is None else Target(host)

    @property
    def kind(self) -> TargetKind:
        """Its kind, which is "llvm" for the CPU."""
        return TargetKind(str(self._attrs["kind"]))

    @property
    def attrs(self) -> dict[str, Any]:
        """Its options."""
        return {key: value for key, value in self._attrs.items() if key not in _NOT_OPTIONS}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._attrs.get("keys", ("cpu",) if self.kind.name in _CPU else ()))

    @property
    def tag(self) -> str:
        return str(self._attrs.get("tag", ""))

    @classmethod
    def current(cls, allow_none: bool = True) -> Target | None:
        """The target of the innermost ``with``.

        Raises:
            ValueError: there is none, and `allow_none` is false.
        """
        stack = getattr(_CURRENT, "targets", ())
        if not stack and not allow_none:
            raise ValueError("Target.current: there is no `with target:` around this")
        return stack[-1] if stack else None

    @classmethod
    def from_device(cls, device: str | Device) -> Target:
        """The target for a device."""
        from .runtime import device as device_of

        kind = device_of(device).type
        return cls("llvm" if kind == "cpu" else kind)

    def get_target_device_type(self) -> int:
        """The number of its devices' type in DLPack."""
        return 1 if self.kind.name in _CPU else Device(self.kind.name).dlpack_device_type()

    def export(self) -> dict[str, Any]:
        """Its attributes as a dict."""
        return dict(self._attrs)

    def with_host(self, host: Any = None) -> Target:
        """Return the target with another host."""
        return Target(self, host)

    def __enter__(self) -> Target:
        if not hasattr(_CURRENT, "targets"):
            _CURRENT.targets = []
        _CURRENT.targets.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.targets.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self._attrs, self.host) == (other._attrs, other.host)

    def __hash__(self) -> int:
        return hash(json.dumps(self._attrs, sort_keys=True, default=str))

    def __str__(self) -> str:
        return json.dumps({**self._attrs, "keys": list(self.keys)})

    __repr__ = __str__


_NOT_OPTIONS: Final = ("kind", "tag", "keys", "host")


def _options(text: str) -> dict[str, Any]:
    kind, *rest = text.split()
    attrs: dict[str, Any] = {"kind": kind}
    for option in rest:
        name, _, value = option.lstrip("-").partition("=")
        attrs[name] = value if value else True
    return attrs


def detect_target() -> Target:
    """The target for this machine: the CPU."""
    return Target("llvm")


def build(
    mod: Any,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: Any = "default",
    tir_pipeline: Any = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compile a program; see `relaxvm.build`.

    Args:
        tir_pipeline: None, "default", or a pass over the PrimFuncs, which runs after the others.
        system_lib: None or false; relaxvm links no programs into the process.

    Raises:
        ValueError: the target is not a CPU, or `system_lib` is true; and as `relaxvm.build`.
    """
    if system_lib:
        raise ValueError("build: expected system_lib=False, got True; export the program by "
                         "export_library('model.so') instead")
    if target is None:
        target = Target.current()
    if params is not None:
        from .runtime import from_tvm

        params = {name: from_tvm(value) for name, value in params.items()}
    if callable(tir_pipeline) and not isinstance(tir_pipeline, str):
        from ...transform import Sequential
        from ...transform.pipelines import get_pipeline

        first = get_pipeline(relax_pipeline) if isinstance(relax_pipeline, str) else relax_pipeline
        relax_pipeline = Sequential([step for step in (first, tir_pipeline) if step is not None])
    return _build.build(mod, target, params, relax_pipeline, exec_mode)


def codegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Generate code for the functions of a lowered module; return the module without them.

    With "compiled" the machine compiles the bytecode, see `relaxvm.build`: there is no TIR of it.
    """
    if exec_mode not in _build.EXEC_MODES:
        raise ValueError(f"exec_mode: expected one of {', '.join(_build.EXEC_MODES)}, got "
                         f"{exec_mode!r}")
    rest = _build.vmcodegen(builder, mod)
    return rest.with_attr(_MODE, exec_mode)


def link(
    builder: ExecBuilder,
    target: Any = None,
    tir_mod: IRModule | None = None,
    tir_pipeline: Any = None,
    ext_libs: Any = None,
    params: Any = None,
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compile the PrimFuncs, and return the executable with them and the generated code.

    Raises:
        ValueError: there are external libraries, which `relaxvm.load_kernels` reads.
    """
    if ext_libs:
        raise ValueError("link: expected no ext_libs: relaxvm.load_kernels reads libraries")
    mode = None if tir_mod is None else tir_mod.get_attr(_MODE)
    executable = _build.vmlink(builder, target, tir_mod)
    return executable.with_section("exec_mode", mode) if mode == "compiled" else executable


_MODE: Final = "relaxvm.exec_mode"


def compile(  # noqa: A001  (TVM's name)
    mod: Any, target: Any = None, *, relax_pipeline: Any = "default", tir_pipeline: Any = "default"
) -> VMExecutable:
    """Compile a program or a PrimFunc; see `build`."""
    return build(mod, target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline)
