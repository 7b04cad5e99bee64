"""Replicated training on a cluster; docs/how-to/distributed_training.md describes each program."""
