"""The plain Python objects behind stateful ops: variables, stacks, tensor arrays, lists, queues, random streams.

They know nothing of graphs and nothing of each other's ops. `manager` says who owns them and under which name.
"""
