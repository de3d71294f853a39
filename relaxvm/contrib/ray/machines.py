"""A machine in an actor: the stateful interface, with the names of `VirtualMachine`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from ...errors import RelaxVMError
from ...isa import FuncKind
from ...limits import Limits
from ...vm.machine import VirtualMachine
from ..batches.predictor import Model, executable_of
from .common import received, sent, the_package, use_assigned_processors

__all__ = ["RemoteMachine"]

_SWEEP_SECONDS: Final = 1.0


class _Machine:
    """In the actor."""

    def open(
        self,
        model: list[Any],
        expiry: float | None,
        limits: Limits | None,
        functions: Mapping[str, Callable[..., Any]] | None,
    ) -> list[str]:
        """Make the machine; return the names of its functions."""
        use_assigned_processors()
        executable = executable_of(received(model[0]), limits)
        self._vm = VirtualMachine(executable, limits=limits, functions=functions)
        self._used = time.monotonic()
        self._calls = 0
        if expiry is not None:
            threading.Thread(target=self._expire, args=(expiry,), daemon=True).start()
        return [info.name for info in executable if info.kind != FuncKind.PACKED]

    def set_input(self, func_name: str, names: list[str], *values: Any) -> None:
        """Set the arguments of a function; the last ones have names."""
        count = len(values) - len(names)
        named = dict(zip(names, values[count:], strict=True))
        self.call("set_input", func_name, *values[:count], **named)

    def call(self, method: str, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the machine."""
        self._calls += 1
        try:
            return getattr(self._vm, method)(func_name, *args, **kwargs)
        finally:
            self._calls -= 1
            self._used = time.monotonic()

    def _expire(self, expiry: float) -> None:
        """End the actor once it was not used for so many seconds."""
        while self._calls or time.monotonic() - self._used < expiry:
            time.sleep(min(_SWEEP_SECONDS, expiry))
        ray = the_package()
        ray.kill(ray.get_runtime_context().current_actor)


class RemoteMachine:
    """A machine in an actor of Ray, with a state of its own::

        with RemoteMachine("counter.onnx") as vm:
            vm.set_input("main", x)
            vm.invoke_stateful("main")
            print(vm.get_outputs("main"))

    Outputs stay with the actor until they are asked for.  It ends when the machine is closed or
    released, or was not used for `expiry` seconds.  What its state was is lost with its process:
    an actor is not started anew.

    Args:
        model: the path of a file that every machine has, or an executable.
        num_cpus: processors for the actor, and threads of its kernels.
        expiry: seconds without a call after which the actor ends; None for never.
        limits, functions: as for `relaxvm.VirtualMachine`.
        ray_options: further options of the actor, such as ``resources`` and ``memory``.

    Raises:
        MissingExtraError: Ray is not installed.
        Exception: as for `relaxvm.VirtualMachine`.
    """

    def __init__(
        self,
        model: Model,
        *,
        num_cpus: float = 1,
        expiry: float | None = None,
        limits: Limits | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._ray = the_package()
        if expiry is not None and not expiry > 0:
            raise ValueError(f"expiry: expected seconds above 0, got {expiry!r}")
        options = {"num_cpus": num_cpus, "max_restarts": 0, **(ray_options or {})}
        kind: Any = self._ray.remote(**options)(_Machine)
        self._actor: Any = kind.remote()
        try:
            self._functions: list[str] = self._get(
                "RemoteMachine", self._actor.open.remote([sent(model)], expiry, limits, functions)
            )
        except BaseException:
            self.close()
            raise

    @property
    def functions(self) -> list[str]:
        """The names of the functions."""
        return self._functions

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments for `invoke_stateful`; see `relaxvm.VirtualMachine.set_input`.
        References to objects of Ray are passed on.

        Raises:
            RelaxVMError: the actor has ended.
            Exception: as for `relaxvm.VirtualMachine.set_input`.
        """
        # As arguments of the actor's method, not in a tuple, so that it gets what they refer to.
        names = list(kwargs)
        reference = self._alive().set_input.remote(func_name, names, *args, *kwargs.values())
        self._get("set_input", reference)

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments of `set_input`; see
        `relaxvm.VirtualMachine.invoke_stateful`.

        Raises:
            RelaxVMError: the actor has ended.
            Exception: as for `relaxvm.VirtualMachine.invoke_stateful`.
        """
        self._get("invoke_stateful", self._alive().call.remote("invoke_stateful", func_name))

    def get_outputs(self, func_name: str) -> Any:
        """Return the result of the last `invoke_stateful` of a function; see
        `relaxvm.VirtualMachine.get_outputs`.

        Raises:
            RelaxVMError: the actor has ended.
            Exception: as for `relaxvm.VirtualMachine.get_outputs`.
        """
        return self._get("get_outputs", self._alive().call.remote("get_outputs", func_name))

    def close(self) -> None:
        """End the actor.  Closing twice is allowed."""
        if self._actor is not None:
            self._ray.kill(self._actor)
            self._actor = None

    def __enter__(self) -> RemoteMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _alive(self) -> Any:
        """The actor.

        Raises:
            RelaxVMError: the machine was closed.
        """
        if self._actor is None:
            raise RelaxVMError("the machine was closed")
        return self._actor

    def _get(self, subject: str, reference: Any) -> Any:
        """The result of a call of the actor; errors are those that it has raised there."""
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
        except exceptions.RayActorError as error:
            raise RelaxVMError(f"{subject}: the actor has ended: it was not used for long, or its "
                               f"process or machine has gone") from error  # fmt: skip
