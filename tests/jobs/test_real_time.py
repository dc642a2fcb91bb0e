"""Attempts by long-lived workers give what attempts in one process give, whatever is lost on the way."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zmq
from support.real_time import LOOPBACK, OnProcesses, on_processes, run_keys
from support.stages import SLOTS, Flow, counted, counting, counts, random_table

from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.driver.attempt_runner import PythonWorkerDied, ShuffleLost
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.desk import PendingOrder, WorkerSilent
from streamtopology.jobs.realtime.desk_socket import DeskSocket
from streamtopology.jobs.realtime.secure import client, secured
from streamtopology.jobs.realtime.worker_sockets import Post, WorkerSockets


@pytest.fixture
def processes() -> Iterator[OnProcesses]:
    with on_processes() as made:
        yield made


def keys_of(rng: np.random.Generator) -> list[int]:
    return rng.integers(0, 40, 300).tolist()


def table(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_counts_are_right_while_keys_move_and_batches_are_read_ahead(processes: OnProcesses, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    flow = Flow(tmp_path, counting(), runner=processes)
    flow.warm_up()
    batches = [keys_of(rng) for _ in range(9)]
    for number, keys in enumerate(batches):
        if number % 3 == 1:
            flow.router.reroute({"n": random_table(rng, SLOTS)})
        if number + 1 < len(batches):
            flow.comes_next(s=table(batches[number + 1]))
        flow.batch(**({} if number else {"s": table(keys)}))
    assert counts(flow) == counted(batches)
    assert processes.runners[0].ahead_used == 3


def test_a_killed_worker_is_replaced_and_nothing_is_lost(processes: OnProcesses, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    flow = Flow(tmp_path, counting(), runner=processes)
    batches = [keys_of(rng) for _ in range(SLOTS)]
    for number, keys in enumerate(batches):
        flow.batch(s=table(keys))
        processes.workers.kill(f"slot-{number}", signal.SIGKILL)
    assert counts(flow) == counted(batches)


class ByHand:
    """A desk, and workers of which the test sends each message."""

    def __init__(self, opened: DeskSocket, context: zmq.Context[zmq.Socket[bytes]], threads: ThreadPoolExecutor) -> None:
        self.desk = opened.desk
        self._address = opened.address
        self._context = context
        self._threads = threads

    def worker(self, name: str, address: bytes = b"tcp://127.0.0.1:1") -> zmq.Socket[bytes]:
        """A worker that has said hello."""
        socket = client(self._context, run_keys(), name)
        socket.connect(self._address)
        socket.send_multipart([messages.HELLO, address])
        self.desk.await_addresses([name], 20)
        return socket

    def answers_of(self, call: PendingOrder) -> Callable[[], object]:
        """Wait for `call` in a thread; what is returned waits for its end, or fails the test."""
        waiting = self._threads.submit(call.answers)
        return lambda: waiting.result(20)


@pytest.fixture
def by_hand() -> Iterator[ByHand]:
    with ExitStack() as undo:
        threads = ThreadPoolExecutor()
        undo.callback(threads.shutdown, wait=False, cancel_futures=True)
        opened = undo.enter_context(DeskSocket(run_keys(), LOOPBACK))
        yield ByHand(opened, undo.enter_context(secured(run_keys())), threads)


def test_a_worker_that_connects_again_may_have_missed_its_order(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    with by_hand.desk.calling(["a/1"]) as call:
        worker.send_multipart([messages.HELLO, b"tcp://127.0.0.1:2"])
        with pytest.raises(WorkerSilent):
            by_hand.answers_of(call)()
    assert by_hand.desk.await_addresses(["a/1"], 0) == ["tcp://127.0.0.1:2"]


def test_a_worker_that_ended_before_it_said_hello_ends_the_wait_for_it(by_hand: ByHand) -> None:
    by_hand.desk.gone("a/1", PythonWorkerDied())
    with pytest.raises(PythonWorkerDied):
        by_hand.desk.await_addresses(["a/1"], 20)


def test_a_worker_that_ended_is_told_from_a_silent_one_also_when_rows_were_read_ahead(by_hand: ByHand) -> None:
    by_hand.worker("a/1")
    with by_hand.desk.calling(["a/1"], by_hand.desk.new_number()) as call:
        by_hand.desk.disconnected("a/1")
        by_hand.desk.gone("a/1", PythonWorkerDied())
        with pytest.raises(PythonWorkerDied):
            by_hand.answers_of(call)()


def test_an_envelope_lost_while_its_sender_reads_ahead_ends_the_attempt(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    with by_hand.desk.calling(["a/1"]) as call:
        ahead = by_hand.desk.new_number()
        worker.send_multipart([messages.LOST, messages.numbered(ahead), b"tcp://gone:1"])
        with pytest.raises(ShuffleLost, match="executor a could not reach a worker at tcp://gone:1"):
            by_hand.answers_of(call)()


def test_executors_that_do_not_reach_each_other_are_named(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    _of_b = by_hand.worker("b/1", b"tcp://127.0.0.1:2")
    with by_hand.desk.calling(["a/1", "b/1"]) as call:
        worker.send_multipart([messages.LOST, messages.numbered(call.number), b"tcp://127.0.0.1:2"])
        with pytest.raises(ShuffleLost, match="executor a could not reach executor b"):
            by_hand.answers_of(call)()


def test_a_loss_of_an_older_attempt_does_not_end_the_next(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    old = by_hand.desk.new_number()
    with by_hand.desk.calling(["a/1"]) as call:
        for kind in (messages.LOST, messages.FAILED, messages.DONE):
            worker.send_multipart([kind, messages.numbered(old), b"", b"of an old attempt"])
        worker.send_multipart([messages.DONE, messages.numbered(call.number), b"new"])
        assert by_hand.answers_of(call)() == [[b"new"]]


def test_a_read_ahead_that_failed_is_not_waited_for(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    ahead = by_hand.desk.new_number()
    with by_hand.desk.calling(["a/1"]) as call:
        worker.send_multipart([messages.FAILED, messages.numbered(ahead), b"", b"no such file"])
        worker.send_multipart([messages.DONE, messages.numbered(call.number)])
        by_hand.answers_of(call)()
    assert by_hand.desk.is_void(ahead)
    with by_hand.desk.calling(["a/1"], ahead) as call, pytest.raises(ShuffleLost):
        by_hand.answers_of(call)()


def test_an_exception_that_the_driver_cannot_load_is_raised_by_its_text(by_hand: ByHand) -> None:
    worker = by_hand.worker("a/1")
    for pickled in (b"", b"garbage", b"cno_such_module\nError\n."):
        with by_hand.desk.calling(["a/1"]) as call:
            worker.send_multipart([messages.FAILED, messages.numbered(call.number), pickled, b"Traceback: ..."])
            with pytest.raises(RuntimeError, match=r"Traceback: \.\.\."):
                by_hand.answers_of(call)()


def test_nothing_is_read_ahead_on_a_worker_that_is_gone(processes: OnProcesses, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    flow = Flow(tmp_path, counting(), runner=processes)
    batches = [keys_of(rng) for _ in range(8)]
    for number, keys in enumerate(batches):
        if number == 5:
            flow.meanwhile.append(lambda: processes.workers.end("slot-0"))
        if number + 1 < len(batches):
            flow.comes_next(s=table(batches[number + 1]))
        flow.batch(**({} if number else {"s": table(keys)}))
    assert counts(flow) == counted(batches)


def test_a_worker_waits_for_its_port_and_says_when_it_is_taken() -> None:
    seconds = iter(range(100))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        post = Post("run", "tcp://127.0.0.1:1", "a/1", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Unavailable, match=r"cannot listen at 127\.0\.0\.1:\d+: Address already in use; free that port"):
            WorkerSockets(post, run_keys(), lambda: next(seconds)).__enter__()
    assert next(seconds) > 5, "it has looked more than once"
