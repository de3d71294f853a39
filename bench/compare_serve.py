"""Requests per second and their times: many models behind the server, beside onnxruntime's.

Both sides run in the same server code; on onnxruntime's side a call of a model is
``InferenceSession.run`` in as many threads as the scheduler has.  A process of its own sends the
requests, over a bounded number of connections, each of which waits for its answer.  Every answer is
compared with what numpy computes.

With ``--disturbed`` there is one model that never ends and one that cannot be loaded among the
models, and requests on them all the time.

    python bench/compare_serve.py --models 200 --requests 10000 --connections 64
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import clean
import numpy as np
from numpy.typing import NDArray

WIDTH = 64
SERVERS = ("relaxvm", "onnxruntime")


def weights(number: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of a model: two layers."""
    rng = np.random.default_rng(number)
    hidden = 64 + 8 * (number % 9)
    return (rng.standard_normal((WIDTH, hidden)).astype(np.float32) / 8,
            rng.standard_normal((hidden, 10)).astype(np.float32) / 8)  # fmt: skip


def expected(number: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
    a, b = weights(number)
    result: NDArray[np.float32] = np.maximum(x @ a, 0) @ b
    return result


def make_models(folder: Path, count: int) -> None:
    """ONNX files of small networks with drawn weights, and two that disturb."""
    from onnx import TensorProto, helper, numpy_helper, save

    for number in range(count):
        a, b = weights(number)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "b"], ["y"])],
            f"model{number}",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
            [numpy_helper.from_array(a, "a"), numpy_helper.from_array(b, "b")],
        )  # fmt: skip
        opset = [helper.make_opsetid("", 17)]
        save(helper.make_model(graph, opset_imports=opset, ir_version=8),
             folder / f"model{number}.onnx")  # fmt: skip


def disturb(folder: Path) -> None:
    from relaxvm import ExecBuilder

    (folder / "faulty.vmexec").write_bytes(b"no program")
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.shape_of", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_goto(-1)
    eb.get().save(folder / "endless.vmexec")


# The servers


def serve(kind: str, folder: str, threads: int) -> None:
    """Serve until the process is ended; prints the port."""
    from relaxvm import serve as serving

    door = serving.listen("127.0.0.1", 0)
    if kind == "onnxruntime":
        use_onnxruntime(threads)
    options = serving.ModelOptions(slots=8, queue=10_000)
    serving.serve(
        [folder], door, options=options, threads=threads,
        on_start=lambda: print(door.getsockname()[1], flush=True),
    )  # fmt: skip


def use_onnxruntime(threads: int) -> None:
    """Let models be computed by onnxruntime; the rest of the server stays as it is."""
    from concurrent.futures import ThreadPoolExecutor

    import onnxruntime

    from relaxvm.serve.service import Service

    pool = ThreadPoolExecutor(threads)
    sessions: dict[str, Any] = {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def run(path: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        session = sessions.get(path)
        if session is None:
            session = sessions[path] = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    async def call(self: Any, model: Any, vm: Any, interface: Any, inputs: Any, priority: int,
                   timeout: float) -> Any:  # fmt: skip
        interface.arranged(inputs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, run, str(model.path), inputs)

    Service.call = call  # type: ignore[method-assign]


# The client


def message(model: str, name: str, x: NDArray[np.float32], **parameters: Any) -> bytes:
    head = json.dumps({
        "inputs": [{"name": name, "shape": x.shape, "datatype": "FP32",
                    "parameters": {"binary_data_size": x.nbytes}}],
        "parameters": {"binary_data_output": True, **parameters},
    }).encode()  # fmt: skip
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: localhost\r\n"
        f"inference-header-content-length: {len(head)}\r\n"
        f"content-length: {len(head) + x.nbytes}\r\n\r\n"
    ).encode() + head + x.tobytes()  # fmt: skip


class Connection:
    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        body = await self.reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ", 2)[1]), body


async def load(port: int, models: int, requests: int, connections: int, disturbed: bool) -> Any:
    """Send the requests; return their times, and what went wrong."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(models):
        x = rng.standard_normal((1 + number % 4, WIDTH)).astype(np.float32)
        cases.append((message(f"model{number}", "x", x), expected(number, x)))
    order = rng.integers(0, models, requests)
    times: list[float] = []
    wrong: list[str] = []
    left = iter(order.tolist())

    def check(status: int, body: bytes, result: NDArray[np.float32]) -> None:
        if status != 200:
            wrong.append(f"{status}: {body[:200]!r}")
        found = np.frombuffer(body[-result.nbytes :], np.float32).reshape(result.shape)
        if not np.allclose(found, result, rtol=1e-4, atol=1e-5):
            wrong.append("a wrong result")

    async def work() -> None:
        connection = Connection(port)
        await connection.open()
        for number in left:
            request, result = cases[number]
            begun = time.perf_counter()
            status, body = await connection.ask(request)
            times.append(time.perf_counter() - begun)
            check(status, body, result)
        connection.writer.close()

    async def disturbing(model: str, status: int) -> None:
        connection = Connection(port)
        await connection.open()
        while True:
            found, body = await connection.ask(
                message(model, "arg0", np.ones((1,), np.float32), timeout=2_000_000)
            )
            if found != status:
                wrong.append(f"{model}: {found} {body[:200]!r}")

    warm = Connection(port)
    await warm.open()
    for request, result in cases:  # loads all models
        check(*await warm.ask(request), result)
    warm.writer.close()
    others = []
    if disturbed:
        others = [asyncio.create_task(disturbing("endless", 504)) for _ in range(2)]
        others += [asyncio.create_task(disturbing("faulty", 503))]
    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    seconds = time.perf_counter() - begun
    for task in others:
        task.cancel()
    return {"seconds": seconds, "times": times, "wrong": wrong}


def measure(kind: str, folder: Path, args: argparse.Namespace, disturbed: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--serve", kind, "--folder", str(folder),
               "--threads", str(args.threads)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            found: dict[str, Any] = asyncio.run(
                load(port, args.models, args.requests, args.connections, disturbed)
            )
        finally:
            server.terminate()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    clean.restart()
    if args.serve:
        serve(args.serve, args.folder, args.threads)
        return
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        make_models(folder, args.models)
        disturb(folder)
        rows: dict[str, list[dict[str, Any]]] = {}
        for _ in range(args.rounds):
            for name, kind, disturbed in (
                ("relaxvm", "relaxvm", False), ("onnxruntime", "onnxruntime", False),
                ("relaxvm, disturbed", "relaxvm", True),
            ):  # fmt: skip
                rows.setdefault(name, []).append(measure(kind, folder, args, disturbed))
    print(clean.machine())
    print(f"{args.models} models, {args.requests} requests, {args.connections} connections, the "
          f"best of {args.rounds} rounds")  # fmt: skip
    print(f"{'':20} {'requests/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'lost':>5} {'wrong':>6}")
    for name, rounds in rows.items():
        best = min(rounds, key=lambda each: float(each["seconds"]))
        p50, p99 = np.percentile(best["times"], [50, 99]) * 1e3
        lost = sum(args.requests - len(each["times"]) for each in rounds)
        wrong = [text for each in rounds for text in each["wrong"]]
        print(f"{name:20} {args.requests / best['seconds']:10.0f} {p50:8.1f} {p99:8.1f} {lost:5} "
              f"{len(wrong):6}")  # fmt: skip
        for text in wrong[:3]:
            print(f"    {text}")


if __name__ == "__main__":
    main()
