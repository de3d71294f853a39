"""The server over HTTP: what clients of Triton ask for, and what nobody should."""

from __future__ import annotations

import asyncio
import base64
import gzip
import http.client
import json
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relaxvm.errors import QueueFullError, RelaxVMError
from relaxvm.serve import Model, ModelError, RemoteError, RemoteMachine, Repository, Scheduler
from relaxvm.serve.service import Answer, Service
from relaxvm.serve.sessions import Session, Sessions

from .. import children
from . import programs

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
triton = pytest.importorskip("tritonclient.http")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException

from relaxvm.serve import Settings, listen, make_app  # noqa: E402

A = np.arange(8, dtype=np.float32).reshape(2, 4)


@contextmanager
def server(folder: Path, **settings: Any) -> Iterator[str]:
    """A server of a folder in this process; gives its address."""
    with Scheduler(threads=2) as scheduler:
        app = make_app(Repository([folder], scheduler), scheduler, Settings(**settings))
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on")
        running = uvicorn.Server(config)
        door = listen("127.0.0.1", 0)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            while not running.started:
                time.sleep(0.005)
            yield f"127.0.0.1:{door.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()
            door.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = programs.folder_of_models(tmp_path_factory.mktemp("models"))
    programs.double().save(path / "batched.vmexec")
    (path / "batched.toml").write_text("batch = 8\nbatch_delay = 0.2\n")
    programs.total().save(path / "total.vmexec")
    (path / "small.toml").write_text("slots = 1\nqueue = 0\nsessions = 2\n")
    programs.endless().save(path / "small.vmexec")
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with server(folder, request_bytes=1 << 20) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address, concurrency=2) as made:
        yield made


def tensors(*arrays: NDArray[Any], names: str = "xy", binary: bool = True) -> list[Any]:
    made = []
    for name, array in zip(names, arrays, strict=False):
        datatype = {"float32": "FP32", "int64": "INT64", "object": "BYTES"}[array.dtype.name]
        tensor = triton.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        made.append(tensor)
    return made


def ask(
    address: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, JSON and headers of an answer."""
    connection = http.client.HTTPConnection(address)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, names)
        response = connection.getresponse()
        data = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, json.loads(data) if data else {}, found
    finally:
        connection.close()


def infer(address: str, model: str, *arrays: NDArray[Any], **more: Any) -> tuple[int, Any]:
    names = ["arg0"] if len(arrays) == 1 else ["x", "y"]
    inputs = [
        {"name": name, "shape": array.shape, "datatype": "FP32", "data": array.ravel().tolist()}
        for name, array in zip(names, arrays, strict=True)
    ]
    status, data, _ = ask(address, "POST", f"/v2/models/{model}/infer",
                          json.dumps({"inputs": inputs, **more}).encode())  # fmt: skip
    return status, data


# What clients of Triton ask for


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert not client.is_model_ready("nothing")
    metadata = client.get_server_metadata()
    assert metadata["name"] == "relaxvm"
    assert "binary_tensor_data" in metadata["extensions"]
    assert client.get_model_metadata("double") == {
        "name": "double", "versions": ["1"], "platform": "relaxvm_vmexec",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]},
                   {"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [],
    }  # fmt: skip
    assert client.get_model_metadata("versions")["versions"] == ["1", "2", "10"]
    config = client.get_model_config("batched")
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": 200_000}
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_inference(client: Any, binary: bool, packed: str | None) -> None:
    large = np.random.default_rng(1).standard_normal((300, 4)).astype(np.float32)
    for array in (A, large, A[:0]):
        answer = client.infer(
            "double", tensors(array, array, binary=binary), request_id="7",
            outputs=[triton.InferRequestedOutput("output_0", binary_data=binary)],
            request_compression_algorithm=packed, response_compression_algorithm=packed,
        )  # fmt: skip
        assert answer.get_response()["id"] == "7"
        found = answer.as_numpy("output_0")
        np.testing.assert_array_equal(found.reshape(array.shape), 4 * array)


def test_several_outputs_and_versions(client: Any) -> None:
    answer = client.infer("shapes", tensors(A, names=("arg0",)))
    assert answer.as_numpy("output_0").tolist() == [2, 4]
    np.testing.assert_array_equal(answer.as_numpy("output_1"), A)
    largest = triton.InferRequestedOutput("output_1", class_count=1)
    one = client.infer("shapes", tensors(A, names=("arg0",)), outputs=[largest])
    assert one.as_numpy("output_1").tolist() == [[b"3.000000:3"], [b"7.000000:3"]]
    first = client.infer("versions", tensors(A, A), model_version="1")
    assert first.get_response()["model_version"] == "1"
    newest = client.infer("versions", tensors(A[:, :2]))
    assert newest.get_response()["model_version"] == "10"
    np.testing.assert_array_equal(newest.as_numpy("output_0"), [[4, 6]])


def test_requests_are_joined(client: Any, address: str) -> None:
    before = client.get_inference_statistics("batched")["model_stats"][0]

    def work(i: int) -> bool:
        array = np.full((1 + i % 2, 4), i, np.float32)
        status, data = infer(address, "batched", array, array)
        return status == 200 and data["outputs"][0]["data"] == (4 * array).ravel().tolist()

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(36)))
    after = client.get_inference_statistics("batched")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == 36
    assert after["execution_count"] - before["execution_count"] < 36
    # One that does not fit the others harms nobody, and neither does one that is wrong itself.
    assert infer(address, "batched", np.ones((9, 4)), np.ones((9, 4)))[0] == 200
    assert infer(address, "batched", np.ones((2, 4)), np.ones((1, 4)))[0] == 400


def test_statistics_and_metrics(client: Any, address: str) -> None:
    client.infer("double", tensors(A, A))
    (found,) = client.get_inference_statistics("double")["model_stats"]
    assert found["inference_count"] > 0
    assert found["inference_stats"]["compute_infer"]["ns"] > 0
    assert len(client.get_inference_statistics()["model_stats"]) > 5
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert re.search(r'relaxvm_requests_total\{model="double",status="200",version="1"\} \d', text)
    assert 'relaxvm_model_loaded{model="double",version="1"} 1.0' in text
    assert "relaxvm_request_seconds_bucket" in text


def test_the_repository(client: Any) -> None:
    index = {each["name"]: each for each in client.get_model_repository_index()}
    assert {"double", "broken", "versions"} <= set(index)
    client.load_model("double")
    client.unload_model("total")
    index = {each["name"]: each for each in client.get_model_repository_index()}
    assert index["double"]["state"] == "READY"
    assert index["total"] == {
        "name": "total", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"
    }
    with pytest.raises(InferenceServerException, match="total was unloaded"):
        client.infer("total", tensors(A[:, :2]))
    assert not client.is_model_ready("total")
    client.load_model("total")
    client.infer("total", tensors(A[:, :2]))
    with pytest.raises(InferenceServerException, match="broken cannot be loaded"):
        client.load_model("broken")


# What is wrong


@pytest.mark.parametrize(
    ("model", "arrays", "status", "message"),
    [
        ("nothing", [A, A], 404, "unknown model nothing"),
        ("doubel", [A, A], 404, "did you mean 'double'"),
        ("broken", [A, A], 503, "broken cannot be loaded: FormatError"),
        ("double", [A], 400, "unknown input arg0"),
        ("double", [A, A[:, :3]], 400, r"input y: expected the shape \[n, 4\], got \[2, 3\]"),
        ("double", [A, A[:1]], 400, "n"),
    ],
)
def test_wrong_requests(
    address: str, model: str, arrays: list[NDArray[Any]], status: int, message: str
) -> None:
    found, data = infer(address, model, *arrays)
    assert found == status
    assert re.search(message, data["error"])


def test_more_wrong_requests(address: str, client: Any) -> None:
    with pytest.raises(InferenceServerException, match="inputs are missing: y"):
        client.infer("double", tensors(A))
    with pytest.raises(InferenceServerException, match="expected FP32, got INT64"):
        client.infer("double", tensors(A.astype(np.int64), A))
    with pytest.raises(InferenceServerException, match="unknown output z"):
        client.infer("double", tensors(A, A), outputs=[triton.InferRequestedOutput("z")])
    assert ask(address, "GET", "/etc/passwd")[0] == 404
    assert ask(address, "GET", "/v2/models/double/infer")[0] == 405
    assert ask(address, "POST", "/v2/models/double/infer", b"{")[0] == 400
    assert ask(address, "GET", "/v2/models/..%2Fdouble")[0] == 404
    status, data, _ = ask(address, "POST", "/v2/models/double/infer", b"x" * (2 << 20))
    assert (status, data["error"]) == (413, "the request has more than 1048576 bytes")
    bomb = gzip.compress(bytes(50 << 20))
    assert ask(address, "POST", "/v2/models/double/infer", bomb, content_encoding="gzip")[0] == 413
    for encoding, body, expected in (("gzip", b"junk", 400), ("br", b"", 415),
                                     ("gzip", gzip.compress(b"{}" * 99)[:-9], 400)):  # fmt: skip
        found = ask(address, "POST", "/v2/models/double/infer", body, content_encoding=encoding)
        assert found[0] == expected
    for length in ("-1", "x", "99999", "1" * 30):
        found = ask(address, "POST", "/v2/models/double/infer", b"{}",
                    **{"inference-header-content-length": length})  # fmt: skip
        assert found[0] == 400
    for parameters, message in (({"priority": "high"}, "priority"), ({"timeout": -1}, "timeout")):
        status, data = infer(address, "double", A, A, parameters=parameters)
        assert (status, message in data["error"]) == (400, True)


def test_deadlines(address: str) -> None:
    status, data = infer(address, "endless", A, parameters={"timeout": 50_000})
    assert status == 504
    assert "has not ended in its time" in data["error"]


@contextmanager
def hanging(address: str, model: str) -> Iterator[None]:
    """A request on a model that never ends, whose client goes away when the block ends."""
    host, port = address.split(":")
    body = json.dumps({
        "inputs": [{"name": "arg0", "shape": [1], "datatype": "FP32", "data": [1]}]
    }).encode()  # fmt: skip
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
    with socket.create_connection((host, int(port))) as wire:
        wire.sendall(head.encode() + b"\r\n\r\n" + body)
        running(address, model, 1)
        yield
    running(address, model, 0)


def test_full_queues(address: str) -> None:
    with hanging(address, "small"):
        status, data, headers = ask(address, "POST", "/v2/models/small/infer", json.dumps({
            "inputs": [{"name": "arg0", "shape": [1], "datatype": "FP32", "data": [1]}],
        }).encode())  # fmt: skip
        assert status == 503
        assert "small: 0 calls wait already" in data["error"]
        assert headers["retry-after"] == "1"
        assert infer(address, "double", A, A)[0] == 200


def test_a_client_that_goes_away_ends_its_call(address: str) -> None:
    with hanging(address, "endless"):
        assert infer(address, "double", A, A)[0] == 200


def running(
    address: str, model: str, count: int, or_else: Callable[[], bool] = lambda: False
) -> None:
    """Wait until so many calls of a model run, or something else is true."""
    wanted = f'relaxvm_running{{model="{model}",version="1"}} {count}.0'
    while not or_else():
        connection = http.client.HTTPConnection(address)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        if wanted in text:
            return
        time.sleep(0.01)


def test_tokens(folder: Path) -> None:
    token = "a-token-of-this-test"
    with server(folder, token=token) as address:
        for path in ("/v2", "/v2/models/double", "/metrics", "/v2/repository/index"):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}):
                status, _, found = ask(address, "GET", path, **headers)
                assert (status, found["www-authenticate"]) == (401, "Bearer")
        assert ask(address, "GET", "/v2/health/live")[0] == 200
        assert ask(address, "GET", "/v2", authorization=f"Bearer {token}")[0] == 200
        with pytest.raises(RemoteError, match="expected the header"):
            RemoteMachine(f"http://{address}", "double")
        with RemoteMachine(f"http://{address}", "double", token=token) as vm:
            assert "main" in vm.functions


def test_requests_that_are_refused_are_logged(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = "a-token-of-this-test"
    caplog.set_level(logging.INFO, logger="relaxvm.serve")
    with server(folder, token=token) as address:
        ask(address, "GET", "/v2")
        for path in ("/none", "/v2/models/double/sessions/secret"):
            ask(address, "GET", path, authorization=f"bearer {token}")
        ask(address, "DELETE", "/v2/models/double/sessions/s", authorization=f"Bearer {token}")
    found = [record.fields for record in caplog.records if record.message == "request"]
    path = "/v2/models/double/sessions/..."
    assert [(each["path"], each["status"]) for each in found] == [
        ("/v2", 401), ("/none", 404), (path, 405), (path, 404),
    ]  # fmt: skip


def test_no_control(folder: Path) -> None:
    with server(folder, control=False) as address:
        for what in ("load", "unload"):
            status, data, _ = ask(address, "POST", f"/v2/repository/models/double/{what}")
            assert (status, "nobody" in data["error"]) == (403, True)
        assert infer(address, "double", A, A)[0] == 200


def test_uploads(tmp_path: Path) -> None:
    content = programs.total().to_bytes()
    config = json.dumps({"backend": "relaxvm", "max_batch_size": 0})
    with (
        server(tmp_path) as address,
        triton.InferenceServerClient(address) as client,
        pytest.raises(InferenceServerException, match="takes no models"),
    ):
        client.load_model("sent", config=config, files={"file:1/model.vmexec": content})
    with (
        server(tmp_path, uploads=True) as address,
        triton.InferenceServerClient(address) as client,
    ):
        client.load_model("sent", config=config, files={"file:1/model.vmexec": content})
        found = client.infer("sent", tensors(A[:, :2])).as_numpy("output_0")
        np.testing.assert_array_equal(found, [[4, 6]])
        for files, parameters, message in (
            ({"file:../model.vmexec": b""}, {}, "expected VERSION/NAME"),
            ({"file:1/model.vmexec": b"\x7fELF"}, {}, "shared library"),
            ({"file:1/model.vmexec": content}, {"config": '{"instance_group": []}'}, "instance_gr"),
            ({"file:1/model.vmexec": content}, {"config": "["}, "config: expected JSON"),
            ({"file:1/model.vmexec": content}, {"unknown": 1}, "unknown parameters: unknown"),
            ({}, {"config": "{}"}, "expected files beside it"),
        ):
            encoded = {name: base64.b64encode(data).decode() for name, data in files.items()}
            body = json.dumps({"parameters": {**encoded, **parameters}}).encode()
            status, data, _ = ask(address, "POST", "/v2/repository/models/other/load", body)
            assert status in (400, 503)
            assert message in data["error"]
        body = b'{"parameters": {"file:1/model.vmexec": "?"}}'
        assert ask(address, "POST", "/v2/repository/models/other/load", body)[0] == 400


def test_a_request_that_does_not_arrive_ends_its_connection(folder: Path) -> None:
    with server(folder, timeout=0.2) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"POST /v2/models/double/infer HTTP/1.1\r\nhost: a\r\n"
                               b"content-length: 100\r\n\r\n{")  # fmt: skip
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"has not arrived in time" in answer


def test_too_many_bytes_at_a_time(folder: Path) -> None:
    with server(folder, total_bytes=1000) as address:
        assert infer(address, "double", A, A)[0] == 200
        large = np.ones((100, 4), np.float32)
        status, data = infer(address, "double", large, large)
        assert (status, "too many bytes" in data["error"]) == (503, True)
        for _ in range(20):  # what was held is given back
            assert infer(address, "double", A, A)[0] == 200


def test_requests_that_are_given_up_while_the_model_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No use of the model is left, and loading it takes one thread."""
    begun, go_on = threading.Event(), threading.Event()
    load = Repository._load
    loads = []

    def slow(self: Repository, model: Model) -> None:
        if model.name == "double":
            loads.append(model)
            begun.set()
            go_on.wait(30)
        load(self, model)

    monkeypatch.setattr(Repository, "_load", slow)

    async def use() -> None:
        with Scheduler(threads=1) as scheduler:
            repository = Repository([folder], scheduler)
            service = Service(repository, scheduler)
            tasks = [
                asyncio.create_task(service.infer("double", None, {"x": A, "y": A}))
                for _ in range(6)
            ]
            while not begun.is_set():
                await asyncio.sleep(0.001)
            await service.infer("shapes", None, {"arg0": A})  # others are loaded meanwhile
            for task in tasks[:3]:
                task.cancel()
            go_on.set()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(each, Answer) for each in results] == [False] * 3 + [True] * 3
            model = repository.find("double")
            assert (len(loads), model._users, service._loading) == (1, 0, {})
            with pytest.raises(ModelError, match="model broken cannot be loaded"):
                await service.infer("broken", None, {})
            service.close()

    asyncio.run(use())


def test_batches_are_computed_by_the_model_that_has_checked_them(tmp_path: Path) -> None:
    """Its file changes, and it is unloaded, while requests wait for others."""
    programs.double().save(tmp_path / "m.vmexec")
    (tmp_path / "m.toml").write_text("batch = 8\nbatch_delay = 0.1\n")

    async def use() -> None:
        with Scheduler(threads=1) as scheduler:
            repository = Repository([tmp_path], scheduler)
            service = Service(repository, scheduler)
            tasks = [
                asyncio.create_task(service.infer("m", None, {"x": A, "y": A})) for _ in range(2)
            ]
            while repository.find("m")._users < 2:
                await asyncio.sleep(0.001)
            model = repository.find("m")
            (tmp_path / "m.vmexec").unlink()
            programs.total().save(tmp_path / "m.vmexec")
            repository.unload("m")
            repository.load("m")
            for answer in await asyncio.gather(*tasks):
                np.testing.assert_array_equal(answer.arrays["output_0"], 4 * A)
            assert repository.find("m") is not model
            service.close()

    asyncio.run(use())


def test_large_answers_to_small_requests(address: str) -> None:
    status, data = infer(address, "double", A, A, outputs=[{"name": "output_0"}] * 2)
    assert (status, data["error"]) == (400, "output output_0 is there twice")


# Sessions


def test_a_call_that_is_given_up_ends_before_the_next_one(folder: Path) -> None:
    async def use() -> None:
        with Scheduler(threads=2) as scheduler:
            repository = Repository([folder], scheduler)
            service = Service(repository, scheduler)
            sessions = Sessions(service, most=2)
            opened = await asyncio.gather(
                *(sessions.open("endless") for _ in range(4)), return_exceptions=True
            )
            assert sum(isinstance(each, QueueFullError) for each in opened) == 2
            session = next(each for each in opened if isinstance(each, Session))
            await sessions.set_input(session, "main", {"arg0": A})
            for _ in range(5):
                task = asyncio.create_task(sessions.invoke_stateful(session, "main"))
                while not session.model.share.running:
                    await asyncio.sleep(0.001)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                assert (session.model.share.running, session.lock.locked()) == (0, False)
            await sessions.close(session)
            sessions.close_all()
            assert session.model._users == 0
            service.close()

    asyncio.run(use())


def test_the_inputs_of_sessions_are_bounded(folder: Path) -> None:
    async def use() -> None:
        with Scheduler(threads=1) as scheduler:
            service = Service(Repository([folder], scheduler), scheduler)
            sessions = Sessions(service, most_bytes=70)
            first, second = await sessions.open("shapes"), await sessions.open("shapes")
            texts = np.array(["a" * 9, "b"], object)  # 26 bytes
            for _ in range(3):  # in place of those before
                await sessions.set_input(first, "main", {"arg0": A})
            await sessions.set_input(second, "main", {"arg0": texts})
            with pytest.raises(QueueFullError, match="would take more than 70 bytes"):
                await sessions.set_input(second, "main", {"arg0": np.ones(12, np.float32)})
            await sessions.close(first)
            await sessions.set_input(second, "main", {"arg0": np.ones(12, np.float32)})
            sessions.close_all()
            service.close()

    asyncio.run(use())


def test_a_connection_that_the_server_has_closed(folder: Path) -> None:
    with server(folder) as address, RemoteMachine(f"http://{address}", "counter") as vm:
        connection = vm._connection
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_WR)  # the server closes its side now
        assert select.select([connection.sock], [], [], 30)[0]
        vm.set_input("main", np.ones(1, np.float32))
        vm.invoke_stateful("main")
        assert vm.get_outputs("main") == 1


def test_stateful_calls(address: str) -> None:
    with (
        RemoteMachine(f"http://{address}", "counter") as one,
        RemoteMachine(f"http://{address}", "counter") as two,
    ):
        for vm, step, count in ((one, 1, 3), (two, 10, 2), (one, 1, 2)):
            vm.set_input("main", np.full(1, step, np.float32))
            for _ in range(count):
                vm.invoke_stateful("main")
        assert one.get_outputs("main").tolist() == [5]  # type: ignore[union-attr]
        assert two.get_outputs("main").tolist() == [20]  # type: ignore[union-attr]
        assert one.get_outputs("main").tolist() == [5]  # type: ignore[union-attr]
    with pytest.raises(RelaxVMError, match="the session was closed"):
        one.invoke_stateful("main")
    one.close()
    with RemoteMachine(f"http://{address}", "shapes", "1") as vm:
        vm.set_input("main", arg0=A)
        vm.invoke_stateful("main")
        shape, same = vm.get_outputs("main")
        assert shape.tolist() == [2, 4]
        np.testing.assert_array_equal(same, A)


def test_wrong_stateful_calls(address: str) -> None:
    with pytest.raises(ValueError, match="expected the URL of a server"):
        RemoteMachine(address, "double")
    with pytest.raises(RemoteError, match="unknown model nothing"):
        RemoteMachine(f"http://{address}", "nothing")
    with RemoteMachine(f"http://{address}", "double") as vm:
        with pytest.raises(RemoteError, match="no inputs are set; call set_input first"):
            vm.invoke_stateful("main")
        with pytest.raises(RemoteError, match="no output is saved; call invoke_stateful first"):
            vm.get_outputs("main")
        with pytest.raises(ValueError, match="no function mian"):
            vm.set_input("mian", A)
        with pytest.raises(RemoteError, match="inputs are missing: y"):
            vm.set_input("main", A)
        with pytest.raises(TypeError, match="expected 2 arguments, got 3"):
            vm.set_input("main", A, A, A)
        with pytest.raises(RemoteError, match="there is no function nothing") as caught:
            vm.invoke_stateful("nothing")
        assert caught.value.status == 400
    first, second = (RemoteMachine(f"http://{address}", "small") for _ in range(2))
    with pytest.raises(RemoteError, match="small: there are 2 sessions already"):
        RemoteMachine(f"http://{address}", "small")
    first.close()
    with RemoteMachine(f"http://{address}", "small"):
        pass
    second.close()


def test_sessions_expire(folder: Path) -> None:
    with server(folder, session_expiry=0.2) as address:
        vm = RemoteMachine(f"http://{address}", "counter")
        while True:
            time.sleep(0.5)
            connection = http.client.HTTPConnection(address)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            if "relaxvm_sessions 0.0" in text:
                break
        vm._connection.close()  # the server may have closed it meanwhile
        with pytest.raises(RemoteError, match=r"expires after 0\.2 s") as caught:
            vm.invoke_stateful("main")
        assert caught.value.status == 404
        vm.close()


# The command


@contextmanager
def command(*args: str, **environment: str) -> Iterator[tuple[Any, str]]:
    """``relaxvm serve`` in a process of its own; gives it and its address."""
    with children.start(
        [sys.executable, "-P", "-m", "relaxvm", "serve", "--port", "0", *args],
        stdout=children.PIPE, stderr=children.PIPE, text=True,
        env={**os.environ, **environment},
    ) as process:  # fmt: skip
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, line.strip().removeprefix("serving at http://")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_shutdown_loses_no_request(tmp_path: Path) -> None:
    programs.endless().save(tmp_path / "endless.vmexec")
    with command(str(tmp_path)) as (process, address), ThreadPoolExecutor(4) as pool:
        parameters = {"timeout": 3_000_000}
        jobs = [pool.submit(infer, address, "endless", A, parameters=parameters) for _ in range(4)]
        running(address, "endless", 4, or_else=lambda: any(job.done() for job in jobs))
        process.send_signal(signal.SIGTERM)
        for job in jobs:
            status, data = job.result()
            assert status == 504, data
        _, err = process.communicate(timeout=children.DEADLINE)
        records = [json.loads(line) for line in err.splitlines()]
        ended = [record for record in records if record.get("model") == "endless"]
        assert [record["status"] for record in ended] == [504] * 4
        assert process.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["FOLDER", "--port", "70000"], 2, "--port: expected 0 to 65535"),
        (["FOLDER", "--threads", "0"], 2, "--threads: expected a number >= 1"),
        (["FOLDER", "--memory", "3X"], 2, "expected bytes, or a number with K, M, G or T"),
        (["FOLDER", "--run-memory", "1G"], 2, "expected --swap FOLDER beside it"),
        (["FOLDER", "--host", "256.0.0.1"], 1, "cannot listen at 256.0.0.1"),
        (["FOLDER/nothing"], 3, "cannot be read"),
        (["FOLDER", "--preload"], 1, "broken cannot be loaded"),
        (["FOLDER", "--token-file", "FOLDER/token"], 2, "a token of at least 16"),
    ],
)
def test_wrong_commands(folder: Path, args: list[str], code: int, message: str) -> None:
    (folder / "token").write_text("short\n")
    done = children.run(
        [sys.executable, "-P", "-m", "relaxvm", "serve", "--port", "0",
         *(arg.replace("FOLDER", str(folder)) for arg in args)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_logs_are_lines_of_json() -> None:
    from relaxvm.serve import JsonFormatter

    record = logging.LogRecord("relaxvm.serve", logging.INFO, "f", 1, "a %s", ("\n",), None)
    record.fields = {"model": "x\n"}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["model"] == "x\n"
