"""Clusters and their servers as messages of TensorFlow."""

from __future__ import annotations

from typing import Any

from headrace import pb


def cluster_def(cluster: Any) -> pb.ClusterDef:
    """Returns a `ClusterSpec` as a message."""
    jobs = {job: {i: cluster.task_address(job, i) for i in cluster.task_indices(job)} for job in sorted(cluster.jobs)}
    return pb.ClusterDef(job=[pb.JobDef(name=job, tasks=tasks) for job, tasks in jobs.items()])


def server_def(cluster: Any, job: str, task: int) -> pb.ServerDef:
    """Returns the server of a task of a `ClusterSpec` as a message."""
    return pb.ServerDef(cluster=cluster_def(cluster), job_name=job, task_index=task, protocol="grpc")
