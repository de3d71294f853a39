"""The metrics of a server in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from .service import Service
from .sessions import Sessions

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Metrics:
    """Counters of requests, and gauges of what a service has.

    Attributes:
        registry: has all of them, and nothing of the process or of other servers in it.
    """

    def __init__(self, service: Service, sessions: Sessions) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "relaxvm_requests", "Requests by model and by the status of the answer",
            ["model", "version", "status"], registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "relaxvm_request_seconds", "Time of answered requests from arrival to answer",
            ["model", "version"], buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.registry.register(_Collector(service, sessions))

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self.registry)


class _Collector:
    """Asks the service when somebody looks."""

    def __init__(self, service: Service, sessions: Sessions) -> None:
        self._service = service
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        labels = ["model", "version"]
        loaded = GaugeMetricFamily("relaxvm_model_loaded", "Whether a model is in memory",
                                   labels=labels)  # fmt: skip
        nbytes = GaugeMetricFamily("relaxvm_model_bytes", "Bytes of a model's weights, mapped or "
                                   "in memory", labels=labels)  # fmt: skip
        waiting = GaugeMetricFamily("relaxvm_waiting", "Requests that wait", labels=labels)
        running = GaugeMetricFamily("relaxvm_running", "Requests that run", labels=labels)
        runs = CounterMetricFamily("relaxvm_runs", "Runs: fewer than requests where these were "
                                   "joined", labels=labels)  # fmt: skip
        queue = CounterMetricFamily("relaxvm_queue_seconds", "Time that requests have waited",
                                    labels=labels)  # fmt: skip
        compute = CounterMetricFamily("relaxvm_compute_seconds", "Time that runs have taken",
                                      labels=labels)  # fmt: skip
        for model in self._service.repository:
            key = [model.name, model.version]
            statistics = self._service.statistics_of(model)
            loaded.add_metric(key, float(model.is_loaded))
            nbytes.add_metric(key, model.nbytes)
            waiting.add_metric(key, model.share.waiting)
            running.add_metric(key, model.share.running)
            runs.add_metric(key, statistics.runs)
            queue.add_metric(key, statistics.queue)
            compute.add_metric(key, statistics.compute)
        yield from (loaded, nbytes, waiting, running, runs, queue, compute)
        sessions = GaugeMetricFamily("relaxvm_sessions", "Open sessions")
        sessions.add_metric([], len(self._sessions))
        swapped = CounterMetricFamily("relaxvm_swapped_runs", "Paused runs that went to disk")
        swapped.add_metric([], self._service.scheduler.swapped)
        yield from (sessions, swapped)
