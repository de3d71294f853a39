"""VirtualMachine: an executable, linked and ready to be called."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, get_args

import numpy as np

import relaxvm

from .._core import Adt, Closure, Machine, Ref, VMFunction
from ..core import ffi
from ..core._threads import MAX_THREADS, get_num_threads
from ..core.live_machines import track
from ..core.rewritings import Optimize, enabled_rewritings
from ..dtypes import dtype_name
from ..errors import NameClashWarning, did_you_mean
from ..executable import FunctionInfo, VMExecutable
from ..executable.file_kinds import HEAD_BYTES, kind_of
from ..isa import FuncKind
from ..limits import Limits
from ..messages import describe, readable, warn
from ..nested import convert_nested
from ..parameters import lists_parameters
from ..values import Device, Shape, cpu, to_value
from ..verify.verified import ensure_verified
from .allocators import (
    NAIVE_ALLOCATOR,
    POOLED_ALLOCATOR,
    Allocator,
    MemoryConfig,
    MemoryStats,
    Storage,
    make_allocators,
    memory_stats,
)
from .calling import BoundFunction, Parameters, SavedFunction, signature_of
from .held_values import Held
from .linking import Functions, link, scope_of
from .native_code import HOT, NativeCode
from .timing import Evaluator

if TYPE_CHECKING:
    from .dataflow import Batches
    from .entry_checks import Tensors
    from .error_notes import ErrorNotes, Frame
    from .runs import Run

__all__ = ["Executor", "FunctionTable", "VMInstrumentReturnKind", "VirtualMachine",
           "check_executor"]  # fmt: skip

Executor = Literal["sequential", "dataflow"]
"""In which order a virtual machine runs calls."""

Hook = Callable[[int, bool, Any, str, Any, tuple[Any, ...]], object]
"""``hook(pc, before, func, name, ret, args)``; returning true before a call skips the call."""


class VMInstrumentReturnKind(IntEnum):
    """The result of an instrument: whether to run the call."""

    NO_OP = 0
    SKIP_RUN = 1


class VirtualMachine(Machine):
    """Runs the functions of an executable::

        vm = VirtualMachine(executable)
        vm.main(x, y)           # or vm["main"](x, y), or by name: vm.main(x, bias=y)

    A function with the name of a method or attribute below is available as ``vm[name]``; a
    `NameClashWarning` names them.

    Creating a VM verifies the executable, compiles the PrimFuncs of its file that it calls, finds
    every packed function it names, and translates its code; no code of the program runs yet.  A VM
    may be used by several threads at once, and a packed function may call back into it.

    Arguments are converted by `relaxvm.values.to_value`: arrays keep their identity, numbers their
    value, and objects with DLPack or an array protocol become arrays over the same memory.  A numpy
    scalar becomes an array of rank 0 if the function expects a tensor, else a number.  A call with
    ``out=`` copies its result into an array, or its results into a tuple of arrays, which it
    returns: see `relaxvm.vm.outputs.call_into`.  A parameter of that name comes first.

    An exception of a packed function keeps its class, and receives notes with the position in the
    program where it was raised.

    Args:
        executable: the executable to run, or its `mod`; or an executable of TVM, as for
            `relaxvm.from_tvm`, with devices of TVM.  Or the path of a file: one that
            `relaxvm.load` reads, or an ONNX model or another program, which is compiled.  A Python
            script is refused, since reading it would run it.
        device: a `Device` or a sequence of them; the CPU if None.  The last device is the host,
            where shapes are computed; if it is not a CPU, a CPU is added.
        memory_cfg: ``"pooled"`` (the default) or ``"naive"``, or a dict from Device to one of them.
        limits: bounds on the executable and on its runs.
        functions: the packed functions that the executable may call: a dict or a `Registry` with
            the functions, or an iterable of names that are registered globally; both forms also
            permit the builtins without effects beyond their arguments.  None permits all of the
            global registry: use it for files you trust.
        optimize: which rewritings of the code are on, such as running known builtins inside the
            core's loop: all (True), none (False), or a set of their names, such as
            ``{"quicken", "read_if"}``.  Results are the same.  `relaxvm.core.operations.REWRITINGS`
            lists the names; ``vm["main"].translated`` shows the code.
        jit: whether functions that run often are compiled to native code in the background, each
            entered at its next call.  Nothing happens where there is no C compiler.  A program that
            was built with ``exec_mode="compiled"`` is compiled here and now.
        executor: ``"dataflow"`` runs calls of kernels that do not depend on each other side by
            side, where that is worth while; see ``docs/dataflow.md``.  Results and errors are those
            of ``"sequential"``.  With `limits` on runs, and while an instrument, a profile or a
            debugger looks on, calls run in order.
        threads: on how many threads calls run side by side, at most, the caller's among them; None
            for `relaxvm.get_num_threads`.

    Raises:
        OSError: the file cannot be read.
        ValueError: `executable` is not an executable, `memory_cfg` does not fit, or `optimize` has
            an unknown name.
        TypeError: another argument is of the wrong class.
        VerifyError: the executable breaks a rule of the verifier.
        LinkError: packed functions are missing; the message names all of them.
        FormatError: a PrimFunc of its file is malformed, or cannot be compiled.
        LimitError: a limit is exceeded.
        CompilerError: the C compiler fails.
    """

    NAIVE_ALLOCATOR: Final = NAIVE_ALLOCATOR
    POOLED_ALLOCATOR: Final = POOLED_ALLOCATOR

    @lists_parameters
    def __init__(
        self,
        executable: (
            VMExecutable
            | relaxvm.contrib.tvm.module.ExecutableModule
            | str
            | os.PathLike[str]
        ),
        device: Device | Sequence[Device] | None = None,
        memory_cfg: MemoryConfig = None,
        *,
        limits: Limits | None = None,
        functions: Functions = None,
        optimize: Optimize = True,
        jit: bool = False,
        executor: Executor = "sequential",
        threads: int | None = None,
    ) -> None:
        check_executor(executor, threads)
        if isinstance(executable, (str, os.PathLike)):
            executable = _executable_of_file(executable, limits, executor)
        if not isinstance(executable, VMExecutable):
            executable, device = _executable_of_module(executable, device, limits, functions)
        if isinstance(executable, VirtualMachine):
            raise ValueError("VirtualMachine: got a relaxvm.VirtualMachine, such as from_tvm "
                             "returns: use it as it is; for another one, pass vm.executable")
        if not isinstance(executable, VMExecutable):
            raise ValueError(f"VirtualMachine: expected a relaxvm.VMExecutable or the path of a "
                             f"file, got {type(executable).__name__}; relaxvm.compile makes an "
                             f"executable of a program, also of bytes and of a ModelProto")
        if not isinstance(limits, Limits | None):
            raise TypeError(f"limits: expected relaxvm.Limits, got {type(limits).__name__}")
        limits = Limits() if limits is None else limits
        rewritings = optimize if isinstance(optimize, bool) else enabled_rewritings(optimize)
        devices = _device_list(device)
        self._scope = scope_of(functions)
        self._scope.add_kernels(executable.kernels)
        self._allocators = make_allocators(devices, memory_cfg, limits)
        ensure_verified(executable, limits=limits, registry=self._scope)
        running = executable
        is_compiled = any(info.kind == FuncKind.COMPILED for info in executable.functions)
        if is_compiled:
            from .compiled_functions import with_entries  # here, since few are compiled

            running = with_entries(executable)
            ensure_verified(running, limits=limits, registry=self._scope)
        self._scope.make_kernels(executable, limits)
        linked = link(running, self._scope)
        callables = linked.callables

        self._executable = executable
        self._limits = limits
        self._devices = devices
        self._recipe = _Recipe(
            executable, devices, memory_cfg, limits, self._scope.allowed, rewritings, bool(jit),
            executor, threads,
        )  # fmt: skip
        self._index = {
            info.name: index
            for index, info in enumerate(executable.functions)
            if info.kind != FuncKind.PACKED
        }
        self._packed = {
            info.name: func
            for info, func in zip(running.functions, callables, strict=True)
            if func is not None
        }
        self._parameters: dict[int, Parameters] = {}
        self._tensors: dict[int, Sequence[Tensors]] = {}
        self._notes: ErrorNotes | None = None
        self._state: dict[str, np.ndarray[Any, Any]] = {}
        self._rooms: dict[str, Any] = {}  # see relaxvm.builtins.state.cache_extend
        self._saved: dict[str, _Saved] = {}
        self._inputs: dict[str, Held] = {}
        self._outputs: dict[str, Held] = {}
        self._instrument: Hook | None = None
        self._hooks: tuple[Hook, ...] = ()
        self._hook_lock = threading.Lock()
        self._native_code: NativeCode | None = None
        self._batches: Batches | None = None
        if executor == "dataflow":
            if jit or is_compiled or executable.exec_mode == "compiled":
                raise ValueError('executor: "dataflow" runs bytecode; jit and programs that were '
                                 'built with exec_mode="compiled" run native code')
            from .dataflow import find_batches  # here, since few want it

            self._batches = find_batches(running, callables, linked.quick, self._scope)
        self._setup(
            running, callables, linked.quick, self._allocators, limits, rewritings, self._batches,
            get_num_threads() if threads is None else threads,
        )  # fmt: skip
        if jit or executable.exec_mode == "compiled":
            self._native_code = self._make_native_code(running, jit)
        track(self)
        clashing = [name for name in self._index if hasattr(type(self), name)]
        if clashing:
            warnings.warn(
                f"functions of the program have names of attributes of a virtual machine: "
                f"{', '.join(map(readable, clashing[:8]))}{', ...' * (len(clashing) > 8)}; "
                f"call them as vm[{readable(clashing[0])!r}]",
                NameClashWarning, stacklevel=2,
            )  # fmt: skip

    # Components

    @property
    def executable(self) -> VMExecutable:
        """The executable that this VM runs."""
        return self._executable

    @property
    def data_types(self) -> dict[str, relaxvm.adt.DataType]:
        """The data types of the program by name; their constructors make values for arguments."""
        return self._executable.data_types

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices; the last one is the host."""
        return self._devices

    @property
    def allocators(self) -> tuple[Allocator, ...]:
        """One allocator per device."""
        return self._allocators

    @property
    def limits(self) -> Limits:
        """The bounds of every run."""
        return self._limits

    @property
    def executor(self) -> Executor:
        """In which order calls run: ``"sequential"`` or ``"dataflow"``."""
        return self._recipe.executor

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """What a program keeps from one call to the next, by name, such as the buffers of a PyTorch
        model that it changes.  Clear it to begin anew; an array that is put here is used by the
        next call."""
        return self._state

    @property
    def functions(self) -> FunctionTable:
        """The VM functions by name, in order of the function table."""
        return FunctionTable(self)

    @property
    def native_code(self) -> NativeCode | None:
        """The native code of the functions; None unless the program was built with
        ``exec_mode="compiled"``, or the VM made with ``jit=True``.

        Runs that an instrument, a profile or a debugger sees take the bytecode.
        """
        return self._native_code

    @property
    def module(self) -> relaxvm.contrib.tvm.module.VMModule:
        """The VM with TVM's module interface."""
        from ..contrib.tvm.module import VMModule  # here, since most programs do not need it

        return VMModule(self)

    # Any, since a saved function has less than a VM function, which is what most callers look up.
    def __getitem__(self, name: str) -> VMFunction | Any:
        """Return the saved function with a name, else the VM function.

        Raises:
            AttributeError: there is neither.
            TypeError: `name` is not a str.
        """
        if not isinstance(name, str):
            raise TypeError(f"vm[...]: expected the name of a function, got {describe(name)}")
        saved = self._saved.get(name)
        if saved is not None:
            args = tuple([arg.value_for(self) for arg in saved.args])
            return SavedFunction(self._function(saved.func_index), args, saved.include_return)
        index = self._index.get(name)
        if index is None:
            raise AttributeError(self._no_function(name))
        return self._function(index)

    def __getattr__(self, name: str) -> VMFunction | Any:
        # Called for names that are not attributes.  There is no index before __init__ has ended.
        index = self.__dict__.get("_index")
        if index is None or (name not in index and name not in self._saved):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if index is not None and not name.startswith("__"):
                message = self._no_function(name)
            raise AttributeError(message, name=name, obj=self)
        return self[name]

    __iter__ = None
    """Not iterable: iterate over `functions`.  Otherwise Python would try ``vm[0]``, ``vm[1]``."""

    def __contains__(self, name: object) -> bool:
        return name in self._saved or name in self._index

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self._index if name.isidentifier())]

    def _no_function(self, name: str) -> str:
        if name in self._packed:
            return (f"{name!r} is a packed function that the executable does not define; "
                    f"it is in vm.module.imports[0]")
        known = [*self._index, *self._saved]
        return f"VM has no function {name!r}{did_you_mean(name, known, 'its functions are')}"

    def _info(self, name: str) -> FunctionInfo:
        """Return the table entry of a VM function.

        Raises:
            ValueError: there is no function with that name.
        """
        index = self._index.get(name)
        if index is None:
            raise ValueError(f"unknown function: {self._no_function(name)}")
        return self._executable.functions[index]

    # Called by the core: calls with keywords, and wrong calls

    def _raise_arity(self, index: int, given: int, captured: int) -> NoReturn:
        info = self._executable.functions[index]
        raise Parameters.of(info).wrong_count(given + captured)

    def _with_tensors(self, index: int, position: int, value: Any) -> Any:
        """Convert numpy scalars in an argument to what the function expects."""
        from .entry_checks import tensors_of, with_tensors  # here, since it is rarely needed

        tensors = self._tensors.get(index)
        if tensors is None:
            info = self._executable.functions[index]
            tensors = self._tensors[index] = tensors_of(self._executable, info)
        return with_tensors(value, tensors[position])

    def _call_with_keywords(
        self, function: VMFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        params = self._parameters_of(function)
        if "out" in kwargs and not params.has("out"):
            from .outputs import call_into  # here, since it is rarely needed

            out = kwargs.pop("out")
            return call_into(function.name, function, params.order(args, kwargs), out)
        return function(*params.order(args, kwargs))

    def _parameters_of(self, function: VMFunction) -> Parameters:
        params = self._parameters.get(function.index)
        if params is None:
            params = self._parameters[function.index] = Parameters.of(function)
        return params

    def _signature_of(self, function: VMFunction) -> inspect.Signature:
        from .described import types_of  # here, since only people and editors ask for it

        types = types_of(self._executable, self._executable.functions[function.index])
        return signature_of(Parameters.of(function), types)

    def _doc_of(self, function: VMFunction) -> str:
        from .described import description  # here, since only help asks for it

        return description(self._executable, self._executable.functions[function.index])

    def _bind(
        self, function: VMFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> BoundFunction:
        return BoundFunction(function, args, kwargs)

    def _start(self, function: VMFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        from .runs import Run  # here, since most programs are called

        checkpoints = None
        if kwargs:
            params = self._parameters_of(function)
            given = {
                name: kwargs.pop(name)
                for name in ("checkpoint", "every") if name in kwargs and not params.has(name)
            }  # fmt: skip
            if given:
                from .saved_runs.checkpoints import Checkpoints  # here, since few runs have them

                if given.get("checkpoint") is None:
                    raise TypeError("start: every: expected a checkpoint beside it")
                checkpoints = Checkpoints(given["checkpoint"], given.get("every"))
            args = params.order(args, kwargs)
        run = Run(self, function.index, args)
        run._checkpoints = checkpoints
        return run

    def _async_call(
        self, function: VMFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        from .asynchronous import call  # here, since few programs do

        if kwargs:
            args = self._parameters_of(function).order(args, kwargs)
        return call(self, function.index, args)

    # Native code

    def _make_native_code(self, executable: VMExecutable, jit: bool) -> NativeCode:
        image = self._translated_for_entries()
        code = NativeCode(executable, image, self._limits)
        if self._executable.exec_mode == "compiled":
            code.compile_all()
            if code.functions:
                self._use(image)
        elif jit:
            image.count_entries(HOT)
            self._use(image)
        return code

    def _on_hot(self, index: int) -> None:
        if self._native_code is not None:
            self._native_code.compile_soon(index)

    # Other ways to call

    def invoke_closure(self, closure: Callable[..., Any], *args: Any) -> Any:
        """Call a closure, a VM function or a function of TVM, as programs return them.  A closure's
        captured values come after `args`.

        Raises:
            TypeError: `closure` is none of these.
            ArityError: the number of arguments is wrong.
        """
        if not isinstance(closure, (Closure, VMFunction, ffi.Function)):
            raise TypeError(f"invoke_closure: expected a closure or a VM function, "
                            f"got {describe(closure)}")
        return closure(*args)

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Save a function with arguments; ``vm[saved_name]()`` then calls it.

        A saved function shadows a function of the executable in ``vm[...]``, but not in its code.
        Arguments are converted as by `set_input`.  Their number is checked at the call, which may
        pass further arguments before them.

        Args:
            func_name: a VM function, or a saved one.
            saved_name: the new name.
            args, kwargs: the arguments.  With keywords they must be complete; positional arguments
                are assigned to the parameters that are not passed by keyword.
            include_return: whether the saved function returns the result or None.

        Raises:
            ValueError: the function is unknown.
            TypeError: a keyword is unknown, or a value cannot be converted.
            ArityError: there are keywords and the number of arguments is wrong.
        """
        base = self._saved.get(func_name)
        if base is None:
            info = self._info(func_name)
            base = _Saved(self._index[func_name], (), True)
        else:
            info = self._executable.functions[base.func_index]
        if kwargs:
            rest = info.num_args - len(base.args)
            names = self._executable.names_of(info.name).inputs[:rest]
            params = Parameters(func_name, rest, info.param_names[:rest], names)
            args = params.fill(args, kwargs)
        values = tuple([Held.by(self, value) for value in _to_inputs(func_name, args)])
        self._saved[saved_name] = _Saved(
            base.func_index, values + base.args, include_return and base.include_return
        )

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments for `invoke_stateful`.

        Here, and in `save_function`, numbers become 0-d arrays, as in TVM: int32 for integers and
        bools, float16 for ``numpy.float16``, float32 for other floats.  Other values are converted
        as in a call.  Positional arguments are assigned to the parameters that are not passed by
        keyword.

        Raises:
            ValueError: the function is unknown.
            TypeError: a keyword is unknown, or a value cannot be converted.
            OverflowError: an integer does not fit int32.
            ArityError: the number of arguments is wrong.
        """
        info = self._info(func_name)
        names = self._executable.names_of(func_name).inputs
        params = Parameters(func_name, info.num_args, info.param_names, names)
        ordered = params.fill(args, kwargs)
        self._inputs[func_name] = Held.by(self, _to_inputs(func_name, ordered))

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments of `set_input`; `get_outputs` returns the result.

        Raises:
            ValueError: the function is unknown, or no arguments are set.
        """
        self._info(func_name)
        args = self._inputs.get(func_name)
        if args is None:
            raise ValueError(f"{func_name}: no inputs are set; call set_input first")
        result = self._function(self._index[func_name])(*args.value_for(self))
        self._outputs[func_name] = Held.by(self, result)

    def get_outputs(self, func_name: str) -> Any:
        """Return the result of the last `invoke_stateful` of a function, with nested tuples.

        Raises:
            ValueError: there is no result.
        """
        if func_name not in self._outputs:
            raise ValueError(f"{func_name}: no output is saved; call invoke_stateful first")
        return self._outputs[func_name].value_for(self)

    # Instruments and hooks

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Call ``instrument(func, name, before_run, ret_value, *args)`` around call instructions.

        It is called before and after each of them, including builtins.  Data types among the
        arguments are passed as text; `ret_value` is None before the call.  If it returns
        `VMInstrumentReturnKind.SKIP_RUN` (or 1) before a call, the call is skipped, its result is
        None, and the instrument is not called after it; any other value lets the call run.  Runs
        that have already started are not affected.

        Args:
            instrument: a callable, the name of a registered function, or None to remove it.

        Raises:
            TypeError: `instrument` is not callable.
            ValueError: no function with that name is registered.
        """
        if isinstance(instrument, str):
            instrument = self._scope.get(instrument)
        if instrument is not None and not callable(instrument):
            raise TypeError(f"set_instrument: expected a callable, got {describe(instrument)}")
        with self._hook_lock:
            self._instrument = None if instrument is None else _instrument_hook(instrument)
            self._install_hooks()

    def _add_hook(self, hook: Hook) -> None:
        """Call `hook` around call instructions, after the instrument and earlier hooks."""
        with self._hook_lock:
            self._hooks = (*self._hooks, hook)
            self._install_hooks()

    def _remove_hook(self, hook: Hook) -> None:
        with self._hook_lock:
            self._hooks = tuple(h for h in self._hooks if h is not hook)
            self._install_hooks()

    def _install_hooks(self) -> None:
        first = () if self._instrument is None else (self._instrument,)
        hooks = first + self._hooks
        self._set_hook(_chain(hooks) if len(hooks) > 1 else hooks[0] if hooks else None)

    def _on_error(
        self, exc: BaseException, frames: Sequence[Frame | None], total: int
    ) -> None:
        """Add notes to an exception.  Never raises, so that the caller of the VM receives `exc`."""
        try:
            # Compiled functions have added the notes of their frames themselves.
            size = len(self._executable)
            own = [frame for frame in frames if frame is None or frame[0] < size]
            self._error_notes().add_to(exc, own, total - len(frames) + len(own))
        except Exception as failure:
            # Probably out of memory or stack; then even this note may fail.
            with contextlib.suppress(Exception):
                note = f"in a relaxvm program ({type(failure).__name__} while finding the position)"
                if note not in getattr(exc, "__notes__", ()):
                    exc.add_note(note)

    def _on_warning(self, message: str, pc: int) -> None:
        """Give a warning of a kernel, with the position of its call."""
        place = self._error_notes().describe_place(pc)
        warn(f"{message} ({place})" if place else message)

    def _error_notes(self) -> ErrorNotes:
        if self._notes is None:
            from .error_notes import ErrorNotes  # here, since most runs have no error

            self._notes = ErrorNotes(self._executable)
        return self._notes

    def time_evaluator(
        self,
        func_name: str,
        dev: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Evaluator:
        """Return a callable that times a function: ``vm.time_evaluator("main")(x).mean``.

        The function is called ``1 + number * repeat`` times; the first call is not timed.

        Args:
            func_name: a VM function, a saved function, or ``"invoke_stateful"``, which takes the
                name of a function as its argument.
            dev: accepted for compatibility with TVM; ignored.
            number: calls per repeat.
            repeat: number of repeats; each has one result, the mean seconds per call.
            min_repeat_ms: the minimal time of a repeat; `number` grows until it is reached.
            cooldown_interval_ms: pause after every `repeats_to_cooldown`-th repeat.
            f_preproc: name of a registered function to call before each repeat.

        Raises:
            InternalError: the function is unknown.
            ValueError: a count is below 1, a time below 0, or `f_preproc` is not registered.
        """
        return self.module.time_evaluator(
            func_name,
            dev,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            f_preproc=f_preproc,
        )

    # Memory and lifetime

    def memory_stats(self) -> MemoryStats:
        """Return the live, peak and cached bytes of the VM's allocators."""
        return memory_stats(self._allocators)

    def trim(self) -> int:
        """Return cached memory to the system; return the number of bytes.

        This is the memory of pooled allocators, arrays that the code keeps for reuse, and the
        workspace of up to 32 MiB that kernels keep for all VMs of the process.
        """
        from ..kernels.implementations import release_workspace  # here: most machines end without

        return self._trim_pools() + release_workspace()

    def _trim_pools(self) -> int:
        """The same of what is the VM's own."""
        self._drop_idle_arrays()
        return sum(allocator.trim() for allocator in self._allocators)

    def close(self) -> None:
        """Release code, packed and saved functions, inputs, outputs and cached memory.

        A VM without references is released at once.  Its functions and closures refer to it: while
        one of them is alive, so is the VM.

        Active calls end normally; later calls raise an exception.  Closing twice is allowed.
        """
        self._close()
        for held in (self._packed, self._saved, self._inputs, self._outputs):
            held.clear()
        with self._hook_lock:
            self._instrument, self._hooks = None, ()
        self._trim_pools()

    def __enter__(self) -> VirtualMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments that the VM was created with, and its saved functions.

        Inputs and outputs, the instrument and memory are not pickled.

        Raises:
            TypeError: the VM has its own functions, which other processes do not have.
        """
        if self._scope.has_own:
            raise TypeError("cannot pickle a VirtualMachine with its own functions; "
                            "pickle vm.executable and create the VM where it is needed")
        return _rebuild, tuple(self._recipe), dict(self._saved) or None

    def __setstate__(self, saved: dict[str, _Saved]) -> None:
        self._saved.update(saved)

    def __repr__(self) -> str:
        names = list(self._index)
        shown = ", ".join(self._heading(name) for name in names[:4])
        more = f", ... {len(names) - 4:,} more" if len(names) > 4 else ""
        devices = ", ".join(map(str, self._devices))
        return f"<VirtualMachine on {devices}: {shown}{more}>"

    def _heading(self, name: str) -> str:
        info = self._info(name)
        params = info.param_names or [f"arg{i}" for i in range(info.num_args)]
        shown = ", ".join(map(readable, params[:8])) + (", ..." if len(params) > 8 else "")
        return f"{readable(name)}({shown})"

    def _repr_html_(self) -> str:
        import html

        devices = html.escape(", ".join(map(str, self._devices)))
        memory = html.escape(str(self.memory_stats()))
        return (f"<p><b>VirtualMachine</b> on {devices}; memory: {memory}</p>\n"
                f"{self._executable._repr_html_()}")


class FunctionTable(Mapping[str, VMFunction]):
    """The functions of a VM by name."""

    __slots__ = ("_vm",)

    def __init__(self, vm: VirtualMachine) -> None:
        self._vm = vm

    def __getitem__(self, name: str) -> VMFunction:
        return self._vm._function(self._vm._index[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._vm._index)

    def __len__(self) -> int:
        return len(self._vm._index)

    def __repr__(self) -> str:
        return f"<functions: {', '.join(map(self._vm._heading, self))}>"


class _Saved(NamedTuple):
    """A saved function: the function of the table that it calls, and its last arguments."""

    func_index: int
    args: tuple[Held, ...]
    include_return: bool


class _Recipe(NamedTuple):
    """The arguments that a VM was created with."""

    executable: VMExecutable
    devices: tuple[Device, ...]
    memory_cfg: MemoryConfig
    limits: Limits
    functions: frozenset[str] | None
    optimize: bool | frozenset[str]
    jit: bool
    executor: Executor
    threads: int | None


def _rebuild(
    executable: VMExecutable,
    devices: tuple[Device, ...],
    memory_cfg: MemoryConfig,
    limits: Limits,
    functions: frozenset[str] | None,
    optimize: bool | frozenset[str],
    jit: bool,
    executor: Executor,
    threads: int | None,
) -> VirtualMachine:
    return VirtualMachine(
        executable, devices, memory_cfg, limits=limits, functions=functions, optimize=optimize,
        jit=jit, executor=executor, threads=threads,
    )  # fmt: skip


def check_executor(executor: Executor, threads: int | None) -> None:
    """Check arguments of `VirtualMachine`.

    Raises:
        ValueError: one of them is wrong.
    """
    if executor not in get_args(Executor):
        raise ValueError(f"executor: expected 'sequential' or 'dataflow', got {describe(executor)}")
    if threads is not None and not (type(threads) is int and 1 <= threads <= MAX_THREADS):
        raise ValueError(
            f"threads: expected an int from 1 to {MAX_THREADS}, or None, got {describe(threads)}"
        )
    if threads is not None and executor != "dataflow":
        raise ValueError('threads: for executor="dataflow"; relaxvm.set_num_threads says on how '
                         "many threads a kernel runs")


def _device_list(device: Device | Sequence[Device] | None) -> tuple[Device, ...]:
    if device is None:
        return (cpu(),)
    devices = (device,) if isinstance(device, Device) else device
    if not isinstance(devices, (list, tuple)):
        raise TypeError(f"device: expected a Device or a list of them, got {describe(device)}; "
                        f"for example relaxvm.cpu()")
    for item in devices:
        if not isinstance(item, Device):
            raise TypeError(f"device: expected a list of Device, got {describe(item)} in it")
    if not devices:
        raise ValueError("device: expected at least one device, got an empty list")
    host = () if devices[-1].exist else (cpu(),)
    return (*devices, *host)


_AS_INPUT: Final = (
    np.ndarray, str, Shape, np.dtype, Device, Closure, VMFunction, Storage, Adt, Ref,
)  # fmt: skip


def _to_inputs(func_name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    convert, done = partial(_to_input, func_name), {}  # type: ignore[var-annotated]
    return tuple([convert_nested(arg, _is_tuple, convert, done=done) for arg in args])


def _is_tuple(arg: Any) -> bool:
    return isinstance(arg, (tuple, list)) and not isinstance(arg, Shape)


def _to_input(func_name: str, arg: Any) -> Any:
    """Convert an argument of `set_input` or `save_function` that is not a tuple.  Source: TVM's
    VirtualMachine."""
    if isinstance(arg, np.float16):
        return np.array(arg, np.float16)
    value = to_value(arg)
    if isinstance(value, int):
        if not -(1 << 31) <= value < 1 << 31:
            raise OverflowError(f"{func_name}: {describe(value)} does not fit int32, "
                                f"the data type of integers here; pass a numpy array")
        return np.array(value, np.int32)
    if isinstance(value, float):
        return np.array(value, np.float32)
    if isinstance(value, _AS_INPUT):
        return value
    raise TypeError(f"{func_name}: expected an array, number, string or tuple as input, "
                    f"got {describe(value)}")


def _instrument_hook(instrument: Callable[..., Any]) -> Hook:
    def hook(
        pc: int, before: bool, func: Any, name: str, ret: Any, args: tuple[Any, ...]
    ) -> bool:
        if pc < 0:  # the start or end of a run; instruments only see calls
            return False
        seen = [dtype_name(arg) if isinstance(arg, np.dtype) else arg for arg in args]
        answer = instrument(func, name, before, ret, *seen)
        return isinstance(answer, int) and answer == VMInstrumentReturnKind.SKIP_RUN

    return hook


def _chain(hooks: Sequence[Hook]) -> Hook:
    """Combine several hooks: they are called in order until one of them skips the call."""

    def hook(
        pc: int, before: bool, func: Any, name: str, ret: Any, args: tuple[Any, ...]
    ) -> bool:
        return any(bool(each(pc, before, func, name, ret, args)) and before for each in hooks)

    return hook


def _executable_of_module(
    value: Any, device: Any, limits: Limits | None, functions: Functions
) -> tuple[Any, Any]:
    """Return the executable of a result of `VMExecutable.mod`, or of one of TVM, and the devices;
    anything else unchanged."""
    if _is_of_tvm(value):
        from ..contrib.tvm import drop_in

        given = device if device is None or not _is_of_tvm(device) else drop_in.devices_of(device)
        return drop_in.program_of(value, limits=limits, functions=functions), given
    from ..contrib.tvm.module import ExecutableModule

    return value.executable if isinstance(value, ExecutableModule) else value, device


def _executable_of_file(
    path: str | os.PathLike[str], limits: Limits | None, executor: Executor
) -> VMExecutable:
    """Read an executable, or compile the program in a file."""
    from ..executable.loading import load
    from .program_cache import compile_file  # here, since most machines run executables

    with open(path, "rb") as file:
        kind = kind_of(file.read(HEAD_BYTES), os.fspath(path))
    if kind is None or not kind.is_program:
        return load(path, limits=limits)
    return compile_file(path, limits, "dataflow" if executor == "dataflow" else "default")


def _is_of_tvm(value: Any) -> bool:
    """Whether an object, or the first of a list, is of a class of TVM or its FFI."""
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return type(value).__module__.partition(".")[0] in {"tvm", "tvm_ffi"}
