"""Cost of a step for the master of a large cluster, by number of workers.

The master's state is the real one, and all messages are encoded and decoded; the workers are simulated, because a
thousand processes do not fit on one machine. So the figures are those of the master alone, without system calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from headrace.dist import master_state as state
from headrace.dist import messages
from headrace.dist.codec import Control, Decoder, encode_control

WORKERS = (2, 10, 100, 1000)
STEPS = 30


class Simulated:
    """A master with simulated workers, and one client.

    Args:
      workers: number of workers; each has one device and a part of the program.
    """

    def __init__(self, workers: int) -> None:
        self.tasks = [f"/job:worker/replica:0/task:{i}" for i in range(workers)]
        self.devices = [f"{task}/device:CPU:0" for task in self.tasks]
        self.state = state.MasterState(self.tasks)
        self.messages = self.bytes = 0
        self._decoder = Decoder(1 << 30)
        for task, device in zip(self.tasks, self.devices, strict=True):
            self._do(state.WorkerUp(task, 1, {device: ("CPU", 0)}))
        (opened,) = self._do(state.FromClient(1, messages.OpenSession(1)))
        self.session = opened.data[0]
        compiled = self._do(state.FromClient(1, messages.CompileStep(2, self.session, b"step")))
        assert not compiled
        parts = state.CompiledParts(
            dict.fromkeys(self.devices, b"part"), [[d] for d in self.devices], [self.devices[0]], is_divided=True
        )
        (answer,) = self._do(state.Compiled(self.session + 1, parts))
        self.program = answer.data[0]

    def step(self) -> None:
        """Runs a step that feeds every worker a scalar and fetches one from the first."""
        feeds = [np.float32(1.0)] * len(self.tasks)
        (reply,) = self._do(state.FromClient(1, messages.RunStep(3, self.session, self.program), feeds))
        assert isinstance(reply, messages.Reply), reply

    def _do(self, event: state.Event) -> list[messages.AnyMessage]:
        """Handles an event, and the answers of the workers; returns the messages for the client."""
        todo, out = [event], []
        while todo:
            for i in self.state.handle(todo.pop(0), 0.0):
                if isinstance(i, state.ToClient):
                    out.append(i.message)
                elif isinstance(i, state.ToWorker):
                    self._count(i.message, i.values)
                    if isinstance(i.message, messages.StartStep):
                        todo.append(self._report(i))
        return out

    def _report(self, i: state.ToWorker) -> state.FromWorker:
        device = f"{i.worker}/device:CPU:0"
        is_first = i.worker == self.tasks[0]
        report = messages.Report(i.message.step, (messages.PartFinished(device, 1, 0, 0, 0),), (0,) if is_first else ())
        arrived = self._count(report, [np.float32(2.0)] if is_first else [])
        return state.FromWorker(i.worker, arrived.message, arrived.values)

    def _count(self, message: messages.AnyMessage, values: Sequence[object]) -> Control:
        """Encodes and decodes a message."""
        data = b"".join(encode_control(message, values))
        self.messages += 1
        self.bytes += len(data)
        room = self._decoder.buffer()
        room[: len(data)] = data
        (frame,) = self._decoder.received(len(data))
        return frame


def scale(workers: Sequence[int] = WORKERS, steps: int = STEPS) -> str:
    """Returns the table of figures by number of workers."""
    rows = []
    for n in workers:
        cluster = Simulated(n)
        cluster.step()  # it sends the program, once
        cluster.messages = cluster.bytes = 0
        seconds = []
        for _ in range(steps):
            began = time.process_time()
            cluster.step()
            seconds.append(time.process_time() - began)
        each = statistics.median(seconds)
        rows.append((n, cluster.messages / steps, cluster.bytes / steps, each, each / n))
    lines = ["| workers | messages a step | bytes a step | CPU a step | CPU a worker |", "|---:|---:|---:|---:|---:|"]
    for n, sent, size, each, share in rows:
        lines.append(f"| {n:,} | {sent:,.0f} | {size:,.0f} | {each * 1e3:.3g} ms | {share * 1e6:.3g} µs |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(scale())
