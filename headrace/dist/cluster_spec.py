"""Description of a cluster: the jobs, their tasks, and the address of each task.

A *task* is one process, such as "/job:worker/task:1". Its address is the host and the port of its server. A program
writes the description as a dict, and the command `headrace worker --cluster cluster.toml` reads it from a file:

    [jobs]
    ps = ["10.0.0.1:2222"]
    worker = ["10.0.0.2:2222", "10.0.0.3:2222"]

All processes of a cluster have the same description. So it is checked completely when it is made, before any of the
processes waits for an address that cannot exist.

Source: TensorFlow's `tf.train.ClusterSpec`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.errors import GraphError
from headrace.ir.device import DeviceSpec

MOST_TASKS: Final = 1 << 16  # in a cluster; the index of a task is less
MOST_BYTES: Final = 1 << 20  # in a file

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
_INDEX = re.compile(r"[0-9]{1,9}\Z")


class ClusterSpec:
    """Jobs of a cluster, with the address of each task.

    An instance does not change.

    Args:
      cluster: a dict from the name of a job to its tasks; another `ClusterSpec`; or a `ClusterDef` message. The tasks
        are a list of addresses, or a dict from the index of a task to its address, if indices are missing. An address
        is "host:port" or "[IPv6]:port". Port 0 is any free port.

    Raises:
      TypeError: an argument, a name, an index or an address has the wrong type.
      ValueError: a name of a job, an index or an address is malformed; two tasks have the same address; or there are
        too many tasks.

    Source: TensorFlow's `tf.train.ClusterSpec`.

    Example:
      >>> cluster = ClusterSpec({"ps": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]})
      >>> cluster.num_tasks("worker"), cluster.task_address("worker", 1)
      (2, 'host2:2222')
      >>> ClusterSpec({"worker": {1: "host2:2222"}})
      ClusterSpec({'worker': {1: 'host2:2222'}})
    """

    __hash__ = None  # type: ignore[assignment]  # equal to dicts

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            self._tasks: dict[str, dict[int, str]] = cluster._tasks
            return
        self._tasks = {_job(name): dict(sorted(_tasks(name, tasks))) for name, tasks in _jobs(cluster)}
        self._check()

    @staticmethod
    def from_toml(path: str | os.PathLike[str]) -> ClusterSpec:
        """Reads a cluster from a TOML file.

        The file has one table, "jobs", from the name of a job to its tasks. The tasks are an array of addresses, or a
        table from the index of a task to its address.

        Args:
          path: the file.

        Raises:
          OSError: the file cannot be read.
          ValueError: the file is not TOML, too large, or does not describe a cluster. The text names the file.

        Example:
          >>> import pathlib, tempfile
          >>> file = pathlib.Path(tempfile.mkdtemp(), "cluster.toml")
          >>> _ = file.write_text('[jobs]\\nworker = ["host1:2222", "host2:2222"]')
          >>> ClusterSpec.from_toml(file)
          ClusterSpec({'worker': ['host1:2222', 'host2:2222']})
        """
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        try:
            return ClusterSpec(_read(data))
        except (TypeError, ValueError, RecursionError) as e:
            raise ValueError(f"{os.fspath(path)}: no description of a cluster: {e}") from e

    def _check(self) -> None:
        seen: dict[str, str] = {}
        for job, tasks in self._tasks.items():
            for i, address in tasks.items():
                name = f"/job:{job}/task:{i}"
                if not address.endswith(":0") and address in seen:
                    raise ValueError(f"{seen[address]} and {name} have the same address {address!r}")
                seen[address] = name
        if sum(map(len, self._tasks.values())) > MOST_TASKS:
            raise ValueError(f"a cluster has at most {MOST_TASKS} tasks")

    # *** properties ***

    @property
    def jobs(self) -> list[str]:
        """Names of the jobs."""
        return list(self._tasks)

    def num_tasks(self, job_name: str) -> int:
        """Returns the number of tasks of a job.

        Args:
          job_name: name of the job.

        Raises:
          ValueError: there is no such job.
        """
        return len(self._of(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of the tasks of a job, in ascending order.

        Args:
          job_name: name of the job.

        Raises:
          ValueError: there is no such job.
        """
        return list(self._of(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of a task.

        Args:
          job_name: name of the job.
          task_index: index of the task.

        Raises:
          ValueError: there is no such job or task.
        """
        tasks = self._of(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}; its tasks are {list(tasks)}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns the addresses of a job, at the indices of their tasks.

        Args:
          job_name: name of the job.

        Returns:
          The list. An element is None if no task has its index.

        Raises:
          ValueError: there is no such job.
        """
        tasks = self._of(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, Any]:
        """Returns the cluster as a dict from the name of a job to its tasks.

        The tasks are a list of addresses. They are a dict from index to address if indices are missing, and if there
        are no tasks.

        Example:
          >>> ClusterSpec({"ps": {0: "host0:2222"}, "worker": {1: "host2:2222"}}).as_dict()
          {'ps': ['host0:2222'], 'worker': {1: 'host2:2222'}}
        """
        return {
            job: list(tasks.values()) if tasks and max(tasks) + 1 == len(tasks) else dict(tasks)
            for job, tasks in self._tasks.items()
        }

    def _of(self, job: str) -> dict[int, str]:
        if job not in self._tasks:
            raise ValueError(f"No such job in cluster: {job!r}; its jobs are {self.jobs}")
        return self._tasks[job]

    # *** comparing ***

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ClusterSpec):
            return self._tasks == other._tasks
        return self._tasks == other if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))})"


def _jobs(cluster: Any) -> Iterator[tuple[Any, Any]]:
    """Iterates over the names of jobs and their tasks."""
    if isinstance(cluster, Mapping):
        yield from cluster.items()
    elif hasattr(cluster, "job") and hasattr(cluster, "SerializeToString"):  # a ClusterDef, of any package
        for job in cluster.job:
            yield job.name, dict(job.tasks)
    else:
        raise TypeError(
            "`cluster` must be a dictionary mapping one or more job names to lists of network addresses, or a "
            f"`ClusterDef` protocol buffer; got {cluster!r}"
        )


def _job(name: Any) -> str:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    if not isinstance(text, str):
        raise TypeError(f"Job name {name!r} must be bytes or unicode")
    try:
        is_name = DeviceSpec.from_string(f"/job:{text}") == DeviceSpec(job=text)
    except GraphError:
        is_name = False
    if not is_name:
        raise ValueError(f"{text!r} is no name of a job: it consists of letters, digits, '_', '-' and '.'")
    return text


def _tasks(job: Any, tasks: Any) -> Iterator[tuple[int, str]]:
    """Iterates over the indices and the addresses of a job's tasks."""
    if not isinstance(tasks, (list, tuple, Mapping)):
        raise TypeError(
            f"The tasks for job {job!r} must be a list or a dictionary from integers to strings; got {tasks!r}"
        )
    if len(tasks) > MOST_TASKS:
        raise ValueError(f"job {job!r} has {len(tasks)} tasks; a cluster has at most {MOST_TASKS}")
    for i, address in tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks):
        if not isinstance(i, int) or isinstance(i, bool):
            raise TypeError(f"Task index {i!r} of job {job!r} must be an integer")
        if not 0 <= i < MOST_TASKS:
            raise ValueError(f"task index {i} of job {job!r} is not between 0 and {MOST_TASKS - 1}")
        yield i, _address(f"task {i} of job {job!r}", address)


def _address(task: str, given: Any) -> str:
    """Returns a checked address, as text."""
    text = given.decode(errors="replace") if isinstance(given, bytes) else given
    if not isinstance(text, str):
        raise TypeError(f"Task address {given!r} must be bytes or unicode: that of {task}")
    host, colon, port = text.rpartition(":")
    why = ""
    if not colon:
        why = "the port is missing"
    elif "://" in host:
        why = "it has a scheme, which is left out"
    elif not _PORT.match(port) or int(port) > 65535:
        why = f"{port!r} is no port between 0 and 65535"
    elif host[:1] == "[" and host[-1:] == "]":
        why = "" if _is_ipv6(host[1:-1]) else f"{host[1:-1]!r} is no IPv6 address"
    elif ":" in host:
        why = "an IPv6 address is written in brackets"
    elif not _HOST.match(host):
        why = f"{host!r} is no name of a host"
    if why:
        raise ValueError(f"the address {text!r} of {task} is not of the form 'host:port' or '[IPv6]:port': {why}")
    return text


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _read(data: bytes) -> dict[str, Any]:
    """Returns the table "jobs" of a TOML file, with numbers as the indices of tasks."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    content = tomllib.loads(data.decode())
    if set(content) != {"jobs"} or not isinstance(content["jobs"], dict):
        raise ValueError(f"it must have the table 'jobs' and nothing else; it has {sorted(content)}")
    return {job: _numbered(x) if isinstance(x, dict) else x for job, x in content["jobs"].items()}


def _numbered(tasks: dict[str, Any]) -> dict[int, Any]:
    """Returns a table with the indices of tasks as numbers."""
    out: dict[int, Any] = {}
    for key, address in tasks.items():
        if not _INDEX.match(key):
            raise ValueError(f"{key!r} is no index of a task")
        if int(key) in out:
            raise ValueError(f"the index {int(key)} occurs twice")
        out[int(key)] = address
    return out


__all__ = ["ClusterSpec"]
