"""Tests of what is said of mistakes, and the tool that finds the mistakes no test makes (`reached`)."""
