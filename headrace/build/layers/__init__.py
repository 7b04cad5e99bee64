"""Layers: functions with variables of their own."""
