"""An ensemble of models behind HTTP under Ray: each request's images go to all replicas, and their answers are voted on.

    python examples/ray/serving.py                          # images by Phalanx
    python examples/ray/serving.py --transport ray          # the same front end by Ray's own store
    python examples/ray/serving.py --kill 1@30              # kill the process of replica 1 in the 30th request
    python examples/ray/serving.py --megabytes 32 --clients 1,2,4 --requests 20

     clients (threads of the driver)    front end (an actor of its host)            replicas (actors, each another model)
       │─ POST /classify, images ─────────►│─ put(images) ─────────────── relayed ─────────►│
       │                                   │◄──────────────────── the digit of each image ──│
       │◄─ the vote, and of which ─────────│

Clients send requests one after the other, for each number of clients in ``--clients`` as many as ``--requests``. A replica whose process
dies is left out, also of the request that it was computing, until Ray has restarted it; no request fails. The models are real and small:
they classify noisy digits, and each vote is compared with that of the same models in this process. With ``--megabytes`` the images of a
request are so many that they have this size, but a replica classifies only 64 of them, and then sleeps for ``--gradient-seconds``:
an EMULATED model, to see what the transport costs.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import queue
import statistics
import sys
import threading
import time
from typing import Any

import digits
import numpy as np
import ray
import runs
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from transports import place_of, value_of

# Of a request of the real size, and what a replica classifies of an emulated one.
IMAGES = 64
# Requests of different clients differ; a client sends these in turn.
BATCHES = 4
# Of the images of a request: what the votes of all replicas together have to be right in.
ACCURACY = 0.7
# Of the vote of a request: replicas that have not answered by then are left out.
ANSWER_LIMIT_S = 60.0


@ray.remote
class Replica:
    def __init__(self, seconds: float, index: int) -> None:
        self._model = digits.Classifier(index)
        self._seconds = seconds

    def ready(self) -> bool:
        return True

    def classify(self, images: Any) -> np.ndarray:
        answer = self._model.classify(looked_at(value_of(images)))
        time.sleep(self._seconds)
        return answer


def looked_at(images: np.ndarray) -> np.ndarray:
    """Return those of a request's images that a replica classifies, from all over it."""
    rows = images.reshape(-1, digits.PIXELS)
    return rows[:: len(rows) // IMAGES][:IMAGES]


class Ensemble:
    """The replicas that answer, and those that do not at present.

    Any thread: of the transport it uses `put` and `spread` alone, which have no state.
    """

    def __init__(self, transport: Any, replicas: list[Any]) -> None:
        self._transport, self._replicas = transport, replicas
        self._lock = threading.Lock()
        self._out: dict[int, Any] = {}  # replicas that have not answered, and a call that ends when they can again

    def vote(self, images: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Return the digits that most replicas see, and which replicas these were."""
        members = self._members()
        given = self._transport.put(images)
        self._transport.spread([self._replicas[member] for member in members], given)
        calls = {self._replicas[member].classify.remote(given): member for member in members}
        came, late = ray.wait(list(calls), num_returns=len(calls), timeout=ANSWER_LIMIT_S) if calls else ([], [])
        answers = {}
        for call in came:
            try:
                answers[calls[call]] = ray.get(call)
            except ray.exceptions.RayActorError:
                self._leave_out(calls[call])
        for call in late:
            self._leave_out(calls[call])
        if not answers:
            raise RuntimeError("no replica has answered")
        return digits.vote(list(answers.values())), list(answers)

    def _members(self) -> list[int]:
        """Return the replicas to ask, with those again that Ray has restarted."""
        with self._lock:
            for member, call in list(self._out.items()):
                if ray.wait([call], timeout=0)[0]:
                    del self._out[member]
                    try:
                        ray.get(call)
                    except ray.exceptions.RayActorError:
                        self._out[member] = self._replicas[member].ready.remote()
            return [member for member in range(len(self._replicas)) if member not in self._out]

    def _leave_out(self, member: int) -> None:
        with self._lock:
            self._out.setdefault(member, self._replicas[member].ready.remote())


@ray.remote(num_cpus=0)
class FrontEnd:
    """The HTTP server, in a process of the driver's host. Each connection has a thread."""

    def __init__(self, arguments: argparse.Namespace, replicas: list[Any]) -> None:
        ensemble = Ensemble(runs.transport(arguments, replicas), replicas)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(ensemble))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def port(self) -> int:
        return self._server.server_address[1]


def _handler_of(ensemble: Ensemble) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open
        disable_nagle_algorithm = True  # an answer is written in two parts, of which the second would wait for the first

        def do_POST(self) -> None:  # noqa: N802
            size = int(self.headers.get("Content-Length", 0))
            if self.path != "/classify" or size == 0 or size % (4 * digits.PIXELS * IMAGES) != 0:
                self.close_connection = True  # the body is not read
                self._answer(400, {"error": f"POST a multiple of {IMAGES} images of {digits.PIXELS} floats to /classify"})
                return
            try:
                digit, voters = ensemble.vote(np.frombuffer(self.rfile.read(size), np.float32))
            except Exception as error:
                self._answer(503, {"error": str(error)})
            else:
                self._answer(200, {"digits": digit.tolist(), "voters": voters})

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class Client(threading.Thread):
    """Sends requests one after the other, and gives each answer to a queue: the batch, seconds, status and answer."""

    def __init__(self, port: int, index: int, batches: list[np.ndarray], numbers: Any, answers: queue.Queue[Any]) -> None:
        super().__init__(daemon=True)
        self._port, self._index, self._batches, self._numbers, self._answers = port, index, batches, numbers, answers

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * ANSWER_LIMIT_S)
        try:
            for number in iter(self._next, None):
                batch = (self._index + number) % len(self._batches)
                began = time.monotonic()
                connection.request("POST", "/classify", memoryview(self._batches[batch]).cast("B"))
                response = connection.getresponse()
                answer = json.loads(response.read())
                self._answers.put((batch, time.monotonic() - began, response.status, answer))
        except Exception as error:
            self._answers.put(error)
        finally:
            connection.close()

    def _next(self) -> int | None:
        try:
            return self._numbers.get_nowait()
        except queue.Empty:
            return None


class Load:
    """The clients, and whether what they were answered is right."""

    def __init__(self, port: int, batches: list[np.ndarray], models: list[digits.Classifier]) -> None:
        self._port, self._batches = port, batches
        self._serial = [[model.classify(looked_at(batch)) for model in models] for batch in batches]
        self.wrong = 0

    def of(self, clients: int, requests: int) -> Any:
        """Send the requests, and yield the replicas and the seconds of each that has been answered."""
        numbers, answers = queue.SimpleQueue(), queue.Queue()
        for number in range(requests):
            numbers.put(number)
        for index in range(clients):
            Client(self._port, index, self._batches, numbers, answers).start()
        for _ in range(requests):
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            batch, seconds, status, content = answer
            voters = content.get("voters", [])
            right = status == 200 and np.array_equal(digits.vote([self._serial[batch][i] for i in voters]), content["digits"])
            self.wrong += not right
            yield voters, seconds


def quantile(values: list[float], share: float) -> float:
    """Return the value that this share of all are not above."""
    return sorted(values)[max(0, int(np.ceil(share * len(values))) - 1)]


def main() -> int:
    parser = runs.parser(__doc__, workers=4)
    parser.add_argument("--clients", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4], help="1,2,4")
    parser.add_argument("--requests", type=int, default=40, help="for each number of clients")
    parser.add_argument("--megabytes", type=float, default=0, help="MiB of the images of a request, for an emulated model")
    parser.add_argument("--gradient-seconds", type=float, default=0, help="of an emulated model's answer")
    arguments = runs.start(parser)

    emulated = arguments.megabytes > 0
    groups = max(1, round(arguments.megabytes * (1 << 20) / (4 * digits.PIXELS * IMAGES))) if emulated else 1
    # In an emulated request the same images many times: the front end, the stores and the links make no difference.
    seen, truth = zip(*[digits.images(IMAGES, (arguments.seed, 3, batch)) for batch in range(BATCHES)])
    batches = [np.repeat(images, groups, axis=0).ravel() for images in seen]
    models = [digits.Classifier(index) for index in range(arguments.workers)]
    accuracy = float(np.mean([digits.vote([model.classify(i) for model in models]) == t for i, t in zip(seen, truth)]))

    options = {"max_restarts": -1, "max_task_retries": 0, "max_concurrency": 4}
    replicas = [
        Replica.options(**{**options, **place_of(index)}).remote(arguments.gradient_seconds if emulated else 0, index)
        for index in range(arguments.workers)
    ]
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    front_end = FrontEnd.options(scheduling_strategy=here).remote(arguments, replicas)  # lives as long as this handle
    run = runs.Run("serving", arguments, replicas, "requests/s", emulated=emulated, megabytes=batches[0].nbytes / (1 << 20),
                   gradient_seconds=arguments.gradient_seconds)
    load = Load(ray.get(front_end.port.remote()), batches, models)
    list(load.of(2, 2 * BATCHES))  # the replicas have started
    levels, seconds_of_all = [], []
    run.begin()
    for clients in arguments.clients:
        began, each = time.monotonic(), []
        for voters, seconds in load.of(clients, arguments.requests):
            run.step(voters, seconds=seconds)
            each.append(seconds)
        levels.append({"clients": clients, "requests_per_s": round(len(each) / (time.monotonic() - began), 3),
                       "p50_s": round(statistics.median(each), 5), "p99_s": round(quantile(each, 0.99), 5)})
        seconds_of_all += each
    while run.goes_on(0):
        for voters, seconds in load.of(1, 1):
            run.step(voters, seconds=seconds)
    return run.end(
        load.wrong == 0,
        accuracy >= ACCURACY,
        [],
        p50_s=statistics.median(seconds_of_all),
        p99_s=quantile(seconds_of_all, 0.99),
        saturation_per_s=max(level["requests_per_s"] for level in levels),
        levels=levels,
        wrong_or_failed=load.wrong,
        accuracy=round(accuracy, 3),
    )


if __name__ == "__main__":
    sys.exit(main())
