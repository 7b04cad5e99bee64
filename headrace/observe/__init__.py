"""Looking into a running step: watches, first bad values, breakpoints, recordings and profiles.

The modules here are imported only for runs that ask for them. A watch changes the graph of the step. The token machine
passes its records to an inspector (`execute.inspector`) for checks of numbers and breakpoints, and its events to a
listener (`step_events`) for recordings and profiles; compiled steps are profiled by timers in their code.
"""
