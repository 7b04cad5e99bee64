"""Python objects behind stateful ops: variables, stacks, tensor arrays, lists, queues, random streams.

They are independent of graphs and of each other's ops. `manager` owns them by name.
"""
