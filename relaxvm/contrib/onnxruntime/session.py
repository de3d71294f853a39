"""InferenceSession: a model that runs.

Source: ``InferenceSession`` and ``IOBinding`` of onnxruntime 1.32.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...core._threads import get_num_threads, set_num_threads
from ...core.blas import get_blas_threads, set_blas_threads
from ...errors import CancelledError
from ...executable.model_info import ValueInfo
from .described import ModelMetadata, NodeArg
from .element_types import type_of_dtype
from .environment import CPU, get_available_providers
from .errors import CODES, Fail, InvalidArgument, ModelLoadCanceled, RuntimeException, status
from .errors import NotImplemented as NotSupported
from .feeds import check_missing, converted, symbols_agree, value_for
from .options import RunOptions, SessionOptions
from .programs import Programs, Variant
from .values import OrtValue, OrtValueVector, check_device, dtype_of_element

__all__ = ["IOBinding", "InferenceSession"]


class InferenceSession:
    """A model that runs on relaxvm.

    Args:
        path_or_bytes: the path of an ONNX model, or its bytes; or the path of an executable that
            was compiled from one.
        sess_options: a `SessionOptions`.
        providers: names, or pairs of a name and options.  Those other than CPUExecutionProvider are
            named in a warning, and the CPU is used.
        provider_options: options by provider.
        kwargs: accepted, as by onnxruntime.

    A session may be used by several threads at once.

    Raises:
        TypeError: an argument is of another class.
        NoSuchFile: there is no such file.
        InvalidProtobuf, InvalidArgument, InvalidGraph: it is no model, or not a valid one.
        NotImplemented: the model has operators that are not supported; the message lists them.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        model: str | bytes
        self._model_path: str | None = None
        self._model_bytes: bytes | None = None
        if isinstance(path_or_bytes, (str, os.PathLike)):
            model = self._model_path = os.fspath(path_or_bytes)
        elif isinstance(path_or_bytes, bytes):
            model = self._model_bytes = path_or_bytes
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(
                f"incompatible constructor arguments: expected SessionOptions, got {sess_options!r}"
            )
        options = SessionOptions() if sess_options is None else sess_options
        _check_providers(providers)
        self._sess_options = options
        self._enable_fallback = True
        self._threads = max(0, options.intra_op_num_threads)
        self._started = time.perf_counter_ns()
        if options._is_cancelled:
            raise status(ModelLoadCanceled, "Session initialization was canceled by the user.")
        self._programs = Programs(model, options._dimensions, _given_to(options))
        info = self._programs.info
        if options.optimized_model_filepath:
            _write_model(model, options.optimized_model_filepath, info.files)
        self._inputs_meta = [NodeArg(each) for each in info.inputs]
        self._outputs_meta = [NodeArg(each) for each in info.outputs]
        self._overridable_initializers = [NodeArg(each) for each in info.constants]
        self._model_meta = ModelMetadata(info)
        self._required = [each.name for each in info.inputs]
        self._output_names = [each.name for each in info.outputs]
        self._known = {each.name: each for each in (*info.inputs, *info.constants)}
        self._defaults = frozenset(each.name for each in info.constants)
        self._places = {name: i for i, name in enumerate(self._output_names)}
        self._profile = self._new_profile() if options.enable_profiling else None

    # What the model says

    def get_inputs(self) -> list[NodeArg]:
        """The inputs."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The constants that are defaults of inputs; a run may give others."""
        return self._overridable_initializers

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._model_meta

    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._sess_options

    # Providers

    def get_providers(self) -> list[str]:
        """The providers: that of the CPU."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers: none."""
        return {CPU: {}}

    def set_providers(
        self, providers: Any = None, provider_options: Sequence[dict[Any, Any]] | None = None
    ) -> None:
        """Accept the CPU.

        Raises:
            RuntimeError: a provider is not there; there is a warning, too.
        """
        for name in _check_providers(providers):
            raise RuntimeError(f"Unknown Provider Type: {name}")

    def disable_fallback(self) -> None:
        """Accepted: there is one provider."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Accepted: there is one provider."""
        self._enable_fallback = True

    # Runs

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: names of outputs, each of which is in the result; all if None or empty.
            input_feed: name of an input -> an array, a list that becomes an array, or an
                `OrtValue`; a sequence is a list.
            run_options: options of this run.

        Returns:
            For each output an array, a list for a sequence, or None.

        Raises:
            ValueError: inputs have no value.
            InvalidArgument: a name is unknown; or a type, rank or dimension is not that of the
                input.
            TypeError, RuntimeError: an argument is of a class that onnxruntime does not take.
            RuntimeException: a node failed.
            Fail: `run_options.terminate` is set.
        """
        check_missing(iter(self._required), list(input_feed.keys()))
        names = self._wanted(output_names, run_options)
        results = self._results(input_feed, run_options, names)
        return [results[name] for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on values; see `run`."""
        feed = {name: value._get_c_value() for name, value in input_dict_ort_values.items()}
        return [OrtValue(result) for result in self.run(output_names, feed, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model in a thread, which then calls ``callback(results, user_data, error)``.

        The error is an empty text, or says what went wrong; then there are no results.

        Raises:
            ValueError: inputs have no value.
        """
        check_missing(iter(self._required), list(input_feed.keys()))

        def work() -> None:
            results: list[Any] = []
            problem = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:
                problem = _without_code(error)
            callback(results, user_data, problem)

        threading.Thread(target=work, name="relaxvm-run_async", daemon=True).start()

    def run_with_ortvaluevector(
        self, run_options: RunOptions | None, feed_names: Sequence[str], feeds: Sequence[OrtValue],
        fetch_names: Sequence[str], fetches: list[OrtValue], fetch_devices: Any = None,
    ) -> None:  # fmt: skip
        """Run the model on values in order; see `run`.  The results are added to `fetches`."""
        given = dict(zip(feed_names, feeds, strict=True))
        fetches.extend(self.run_with_ort_values(fetch_names, given, run_options))

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:  # fmt: skip
        """Return a value with a new array; see `OrtValue.ortvalue_from_shape_and_type`."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    def get_input_memory_infos(self) -> list[Any]:
        """The memory of each input: that of the CPU."""
        return self._memory(len(self._inputs_meta))

    def get_output_memory_infos(self) -> list[Any]:
        """The memory of each output: that of the CPU."""
        return self._memory(len(self._outputs_meta))

    def _memory(self, count: int) -> list[Any]:
        return [device.memory_info() for device in self._devices(count)]

    def get_input_epdevices(self) -> list[Any]:
        """The provider of each input: that of the CPU."""
        return self._devices(len(self._inputs_meta))

    def _devices(self, count: int) -> list[Any]:
        from .devices import get_ep_devices

        return get_ep_devices() * count

    def get_tuning_results(self) -> list[Any]:
        """What was found by trying kernels: nothing."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Accepted: no kernels are tried."""

    def io_binding(self) -> IOBinding:
        """Return a binding of memory to inputs and outputs."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run the model on bound memory.

        Raises:
            RuntimeError: the run fails, or results do not fit the bound memory.
        """
        try:
            iobinding._run(run_options)
        except tuple(CODES) as error:
            raise RuntimeError(f"Error in execution: {_without_code(error)}") from error

    def _wanted(self, names: Any, run_options: Any) -> list[str]:
        """Check names of outputs, and options."""
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise TypeError(
                f"run(): incompatible function arguments: expected RunOptions, got {run_options!r}"
            )
        if not names:
            return self._output_names
        wanted: list[str] = [] if isinstance(names, (str, bytes)) else list(names)
        if not wanted or not all(isinstance(name, str) for name in wanted):
            raise TypeError(
                f"run(): incompatible function arguments: expected names of outputs, got {names!r}"
            )
        return wanted

    def _results(
        self, feed: Mapping[str, Any], run_options: RunOptions | None, names: Collection[str]
    ) -> dict[str, Any]:
        """The results, those of outputs with these names among them."""
        if run_options is not None and run_options._adapters:
            from .adapters import parameters_of

            feed = {**feed, **parameters_of(run_options._adapters)}
        given = {}
        for name, value in feed.items():
            expected = self._known.get(name)
            if expected is None:
                if value is None:
                    continue
                raise status(InvalidArgument, f"Invalid input name: {name}")
            given[name] = expected, converted(value, expected)
        values = {
            name: (expected, value_for(given[name][1], expected))
            for name, expected in self._known.items()
            if name in given
        }
        for name in names:
            if name not in self._places:
                raise status(InvalidArgument, f"Invalid output name:{name}")
        some = tuple([name for name in self._output_names if name in names])
        wanted = None if len(some) == len(self._output_names) else some
        variant = self._programs.supported(Variant(
            frozenset(self._defaults & values.keys()), _ranks(values), not symbols_agree(values),
            wanted,
        ))  # fmt: skip
        machine = self._programs.machine(variant)
        order = machine.executable.names_of("main").inputs
        arguments = [values[name][1] for name in order]
        _use_threads(self._threads)
        with np.errstate(all="ignore"):  # ONNX has infinities and NaN without warnings
            result = self._called(machine, arguments, run_options)
        found = self._output_names if variant.outputs is None else variant.outputs
        results = [result] if len(found) == 1 else list(result)
        return {
            name: _own(each, arguments) for name, each in zip(found, results, strict=True)
            if name in names
        }  # fmt: skip

    def _called(self, machine: Any, arguments: list[Any], options: RunOptions | None) -> Any:
        function = machine["main"]
        if options is None:
            try:
                return function(*arguments)
            except CancelledError:
                return self._called(machine, arguments, RunOptions())
            except Exception as error:
                raise _failed(error) from error
        options._begin(machine.cancel)
        try:
            while not options.terminate:
                # Another run of the machine may have been terminated, and this one with it.
                try:
                    return function(*arguments)
                except CancelledError:
                    continue
                except Exception as error:
                    raise _failed(error) from error
        finally:
            options._end(machine.cancel)
        raise status(Fail, "Exiting due to terminate flag being set to true.")

    # Profiling

    def _new_profile(self) -> Any:
        from ...observe.profiler import profile

        found = profile(self._programs.machine(Variant()))
        found.__enter__()
        return found

    def end_profiling(self) -> str:
        """Write the times of the runs, as a trace for https://ui.perfetto.dev, and return the name
        of the file; an empty text if the session has no profile."""
        if self._profile is None:
            return ""
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        part = time.time_ns() // 1_000_000 % 1000
        name = f"{self._sess_options.profile_file_prefix}_{stamp}_{part}.json"
        profile.save_chrome_trace(name)
        return name

    def get_profiling_start_time_ns(self) -> int:
        """When the session was made."""
        return self._started

    # Refused

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise status(
                NotSupported,
                f"InferenceSession.{name} is not supported by relaxvm: {_REFUSED[name]}",
            )
        raise AttributeError(
            f"'InferenceSession' object has no attribute {name!r}", name=name, obj=self
        )


_REFUSED: Final = {
    "get_provider_graph_assignment_info": "there is one provider, and no graph is cut",
    "release_captured_graph": "graphs are captured on other devices alone",
    "set_ep_dynamic_options": "there is one provider, and it has no options",
}


class IOBinding:
    """Memory for the inputs and outputs of a session."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[Any]) -> None:
        """Give an input an array.

        Raises:
            RuntimeError: there is no such input, or it is no array.
        """
        if name not in self._session._known:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any,
        shape: Sequence[int], buffer_ptr: int,
    ) -> None:  # fmt: skip
        """Give an input memory by its address; it must stay valid."""
        check_device(device_type)
        self._inputs[name] = _array_at(buffer_ptr, shape, element_type)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Give an input a value."""
        self._inputs[name] = ortvalue

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Ask for an output, in new memory, or in memory at an address."""
        check_device(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError(
                "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
            )
        self._outputs[name] = OrtValue(_array_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Accepted: there is nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Accepted: there is nothing to wait for."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results = []

    def get_outputs(self) -> list[OrtValue]:
        """The values of the outputs, in the order in which they were asked for."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The same as `get_outputs`."""
        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs as arrays."""
        return [value._ort_payload for value in self._results]

    _results: list[OrtValue] = []  # noqa: RUF012  (replaced, never changed)

    def _run(self, run_options: RunOptions | None) -> None:
        session = self._session
        if not self._outputs:
            raise status(InvalidArgument, "At least one output should be requested.")
        for name in session._required:
            if name not in self._inputs:
                raise status(Fail, f"Missing Input: {name}")
        names = list(self._outputs)
        found = session._results(self._inputs, session_options(run_options), names)
        results = []
        for name in names:
            result = found[name]
            bound = self._outputs[name]
            results.append(OrtValue(result) if bound is None else _filled(name, bound, result))
        self._results = results


def _write_model(model: str | bytes, path: str, files: Sequence[str]) -> None:
    """Write a model as the one that the session has optimized.

    It is the model itself: what relaxvm makes of it is no ONNX model, and is kept in its own cache.
    So every runtime reads the file.

    Raises:
        NotImplemented: it has constants in other files, whose places are relative to its own.
        Fail: the file cannot be written.
    """
    if files:
        raise status(
            NotSupported,
            "SessionOptions.optimized_model_filepath is not supported by relaxvm for models with "
            f"constants in other files ({', '.join(files)})",
        )
    try:
        data = model
        if isinstance(data, str):
            with open(data, "rb") as file:
                data = file.read()
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise status(Fail, f"optimized_model_filepath: {path}: {error.strerror or error}") from None


def _given_to(options: SessionOptions) -> dict[str, Any]:
    """What every program of a session is compiled with."""
    given: dict[str, Any] = {}
    if options._constants:
        given["constants"] = {name: each.numpy() for name, each in options._constants.items()}
    if options._files:
        given["files"] = options._files
    return given


def session_options(options: Any) -> RunOptions | None:
    """Check options of a run."""
    if options is not None and not isinstance(options, RunOptions):
        raise TypeError(f"incompatible function arguments: expected RunOptions, got {options!r}")
    return options


def _filled(name: str, bound: OrtValue, result: Any) -> OrtValue:
    """Copy a result into bound memory."""
    target = bound._ort_payload
    if not isinstance(target, np.ndarray) or not isinstance(result, np.ndarray):
        bound._ort_payload = result
        return bound
    if target.dtype != result.dtype:
        raise status(
            InvalidArgument,
            f"Unexpected output data type. Actual: ({type_of_dtype(target.dtype)}) , expected: "
            f"({type_of_dtype(result.dtype)})",
        )
    if target.shape != result.shape:
        shapes = [f"{{{','.join(map(str, each.shape))}}}" for each in (target, result)]
        raise status(
            InvalidArgument,
            f"The output OrtValue provided for output '{name}' has shape {shapes[0]} but the "
            f"computed output shape for this run is {shapes[1]}.",
        )
    np.copyto(target, result)
    return bound


def _array_at(address: int, shape: Sequence[int], element_type: Any) -> NDArray[Any]:
    dtype = dtype_of_element(element_type)
    count = int(np.prod(tuple(shape), dtype=np.int64))
    memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(tuple(shape))


def _check_providers(providers: Any) -> list[Any]:
    """Warn of providers that are not there, or there twice, as onnxruntime does.

    Returns:
        Those that are not there.
    """
    available = get_available_providers()
    names: list[Any] = []
    for provider in providers or ():
        name = provider[0] if isinstance(provider, (tuple, list)) else provider
        if name in names:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=3)
            continue
        names.append(name)
        if name not in available:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available)}'",
                stacklevel=3,
            )
    return [name for name in names if name not in available]


def _ranks(values: Mapping[str, tuple[ValueInfo, Any]]) -> tuple[tuple[str, int], ...]:
    """The inputs that the model declares as scalars, and that are not."""
    return tuple([
        (name, value.ndim)
        for name, (expected, value) in values.items()
        if expected.shape == () and isinstance(value, np.ndarray) and value.ndim
    ])  # fmt: skip


def _own(result: Any, arguments: list[Any]) -> Any:
    """A result as a caller may keep and change it: not the memory of an argument or a constant."""
    if isinstance(result, np.ndarray):
        shared = any(
            isinstance(each, np.ndarray) and np.may_share_memory(result, each) for each in arguments
        )
        return result.copy() if shared or not result.flags.writeable else result
    if isinstance(result, tuple):
        return [_own(each, arguments) for each in result]
    if isinstance(result, (bool, int, float, np.generic)):
        return np.asarray(result)
    return result


def _failed(error: Exception) -> Exception:
    """The error of a node that failed."""
    if isinstance(error, tuple(CODES)):
        return error
    notes = "\n".join(getattr(error, "__notes__", ()))
    text = f"Non-zero status code returned while running the model. Status Message: {error}"
    return status(RuntimeException, f"{text}\n{notes}" if notes else text)


def _without_code(error: Exception) -> str:
    """The message of an error without the code that it starts with."""
    text = str(error)
    if text.startswith("[ONNXRuntimeError]"):
        return text.split(" : ", 3)[3]
    return text


_threads_lock: Final = threading.Lock()
_process_threads: list[tuple[int, int | None]] = []
"""The numbers of threads that the process had before a session set another one: of kernels, and of
numpy's BLAS."""


def _use_threads(count: int) -> None:
    """Have kernels run on a number of threads; 0 for that of the process."""
    if count == 0:
        if _process_threads:
            with _threads_lock:
                if _process_threads:
                    kernels, blas = _process_threads.pop()
                    set_num_threads(kernels)
                    if blas is not None:
                        set_blas_threads(blas)
        return
    count = min(count, 256)
    if not (_process_threads and get_num_threads() == count):
        with _threads_lock:
            if not _process_threads:
                _process_threads.append((get_num_threads(), get_blas_threads()))
            set_num_threads(count)
