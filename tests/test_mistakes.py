"""Messages for common mistakes of new users, and for names made to mislead."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relaxvm
from relaxvm import ExecBuilder, FuncKind, FunctionInfo, Limits, VirtualMachine, VMExecutable
from relaxvm.cli import main

from .vm_programs import FUNCTIONS, program


@pytest.fixture(scope="module")
def executable() -> VMExecutable:
    return program()


@pytest.fixture(scope="module")
def vm(executable: VMExecutable) -> VirtualMachine:
    return VirtualMachine(executable, functions=FUNCTIONS)


# Arguments of the wrong kind


@pytest.mark.parametrize("name", [0, None, b"main"])
def test_functions_have_names(vm: VirtualMachine, name: Any) -> None:
    with pytest.raises(TypeError, match=r"vm\[\.\.\.\]: expected the name of a function, got"):
        vm[name]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: Limits(fule=3), r"Limits\(\) got .* 'fule', it has file_bytes, .*mean 'fuel'\?"),
        (lambda: Limits().but(fule=3), r"Limits\(\) got .* 'fule', it has file_bytes"),
        (lambda: relaxvm.build(None, parms={}), r"build\(\) got .* 'parms', it has mod, target"),
        (lambda: relaxvm.load("x", nativ=1), r"load\(\) got .*, it has source, limits, .*'native'"),
        (lambda: VirtualMachine(None, fuctions=()), r"VirtualMachine\(\) got .*'functions'\?"),
    ],
)
def test_unknown_keywords_list_the_known_ones(
    function: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        function()


def test_profile_takes_a_machine(executable: VMExecutable) -> None:
    with pytest.raises(TypeError, match="profile: expected a VirtualMachine, got VMExecutable"):
        relaxvm.profile(executable)  # type: ignore[arg-type]


def test_parse_text_takes_text() -> None:
    with pytest.raises(TypeError, match="parse_text: expected a str, got bytes"):
        relaxvm.parse_text(b"@main:")  # type: ignore[arg-type]


def test_loads_takes_bytes() -> None:
    with pytest.raises(TypeError, match=r"got str; for a path there is load\(path\)"):
        relaxvm.loads("model.vmexec")


@pytest.mark.parametrize("target", [None, 3, b"path"])
def test_save_takes_a_path(executable: VMExecutable, target: Any) -> None:
    with pytest.raises(TypeError, match="save: expected a path or a file to write, got"):
        executable.save(target)


def test_an_error_of_save_names_the_target(executable: VMExecutable, tmp_path: Path) -> None:
    target = tmp_path / "nowhere" / "it.vmexec"
    with pytest.raises(FileNotFoundError) as info:
        executable.save(target)
    assert info.value.filename == str(target)


@pytest.mark.parametrize("name", [3, None, 1.5])
def test_register_func_takes_a_name_or_a_function(name: Any) -> None:
    with pytest.raises(TypeError, match="register_func: expected a name or a function, got"):
        relaxvm.register_func(name)


def emitting(emit: Callable[[ExecBuilder], object]) -> None:
    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        emit(ib)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda ib: ib.emit_call("f", ib.r(0), ib.r(1)), "args: expected a list of words, got int"),
        (lambda ib: ib.emit_call("f", "xy"), "args: expected a list of words, got str 'xy'"),
        (lambda ib: ib.emit_call("f", [[1, 2]]), "argument 0: expected .*, got list of 2; pass"),
        (lambda ib: ib.bind("again"), r"bind: expected a label made by label\(\), got str"),
    ],
)
def test_the_builder_names_the_place(emit: Callable[[ExecBuilder], object], message: str) -> None:
    with pytest.raises(TypeError, match=f"function 'main', pc 0: .*{message}"):
        emitting(emit)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wall_time", float("inf")),
        ("wall_time", 1e300),
        ("call_depth", 1 << 63),
        ("fuel", 1 << 63),
        ("live_bytes", 1 << 80),
    ],
)
def test_limits_fit_the_counters_of_the_core(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{name}: expected at most \d+, got"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_the_greatest_limits_work(executable: VMExecutable) -> None:
    most = (1 << 63) - 1
    limits = Limits(
        call_depth=most, fuel=most, wall_time=1e9, live_bytes=most, alloc_bytes=most, registers=most
    )
    assert VirtualMachine(executable, functions=FUNCTIONS, limits=limits).main(1, 2) == 3


def test_a_machine_is_not_iterable(vm: VirtualMachine) -> None:
    with pytest.raises(TypeError, match="'VirtualMachine' object is not iterable"):
        list(vm)  # type: ignore[call-overload]


def test_parameters_of_one_name_have_no_keyword() -> None:
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, 1, 3, 3, ("x", "y", "x"))
    vm = VirtualMachine(VMExecutable([main], [], [0], [2, 1]))  # ret %1
    assert vm.main(1, 2, 3) == 2
    assert str(vm.main.signature) == "(arg0, arg1, arg2, /)"
    with pytest.raises(TypeError, match=r"unexpected keyword 'x', the parameters are \(x, y, x\)"):
        vm.main(1, 2, x=3)


def test_errors_survive_pickling() -> None:
    made = [
        getattr(relaxvm.errors, name)("what happened")
        for name in relaxvm.errors.__all__
        if name[0].isupper()
    ]
    made += [
        relaxvm.errors.ParseError("p", line=3, column=4),
        relaxvm.errors.LimitError("l", "fuel"),
        relaxvm.errors.LinkError("m", ("f",)),
    ]
    for error in made:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
        # As packages do that pickle tracebacks, too.
        kind = type(error)
        assert isinstance(kind.__new__(kind, *error.args), kind)


# At the prompt


def test_dir_lists_what_the_package_offers() -> None:
    public = {name for name in dir(relaxvm) if not name.startswith("__")}
    assert public == set(relaxvm.__all__) - {"__version__"}


def test_a_wrong_name_can_be_corrected() -> None:
    with pytest.raises(AttributeError) as info:
        relaxvm.verfy  # noqa: B018
    # Python's suggestions of names use these attributes.
    assert (info.value.name, info.value.obj) == ("verfy", relaxvm)


def test_repr_of_a_builder() -> None:
    ib = ExecBuilder()
    assert repr(ib) == "<ExecBuilder: 0 functions with 0 instructions, 0 constants>"
    with ib.function("main", num_inputs=1):
        ib.emit_call("f", [ib.r(0), ib.convert_constant("text")], dst=ib.r(1))
        assert repr(ib).endswith(", 1 constants, inside of 'main'>")
        ib.emit_ret(ib.r(1))
    assert repr(ib) == "<ExecBuilder: 1 functions with 2 instructions, 1 constants>"


def test_repr_of_an_instruction(executable: VMExecutable) -> None:
    first = next(executable.instructions())
    assert repr(first.instruction).startswith("Instruction(op=<Op call>, fields=(2, 1), args=(Arg(")


# Names from a file that would forge a line or control the terminal

FORGED = "ok():\n  ret   %0\n\n@main\x1b[31m\u202e"


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ib = ExecBuilder()
    with ib.function(FORGED, num_inputs=1, param_names=["x\ny"]):
        ib.emit_call("callee" + FORGED, [ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    path = tmp_path_factory.mktemp("forged") / "forged.vmexec"
    ib.get().save(path)
    return path


@pytest.mark.parametrize(
    "command",
    [["inspect"], ["dis"], ["dis", "--complete"], ["dis", "--function", FORGED], ["run"]],
    ids=lambda command: " ".join(command)[:16],
)
def test_commands_show_a_name_on_one_line(
    forged: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*command, str(forged)])
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).splitlines()
    assert any(r"ok():\n  ret   %0\n\n@main\x1b[31m\u202e" in line for line in lines)
    assert not any(line.startswith("  ret   %0") for line in lines)
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def fail(x: Any) -> Any:
    raise ValueError("failed")


def test_errors_and_reprs_show_a_name_on_one_line(forged: Path) -> None:
    executable = relaxvm.load(forged)
    vm = VirtualMachine(executable, functions={"callee" + FORGED: fail})
    with pytest.raises(ValueError, match="failed") as info:
        vm[FORGED](1)
    (note,) = info.value.__notes__
    with pytest.raises(relaxvm.errors.ArityError) as arity:
        vm[FORGED]()
    with pytest.raises(relaxvm.errors.LinkError) as missing:
        VirtualMachine(executable, functions={})
    html = vm._repr_html_()
    for text in (note, html, *map(str, (arity.value, missing.value, executable, vm, vm.functions))):
        assert r"ok():\n" in text
        assert "\x1b" not in text
    assert note.count("\n") == 1


def test_plain_names_stay_as_they_are() -> None:
    ib = ExecBuilder()
    with ib.function("größe 1", num_inputs=1):
        ib.emit_call("a;b", [ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    assert ib.get().as_text().splitlines()[0] == "@größe 1:"
    assert "call  a;b " in ib.get().as_text()
