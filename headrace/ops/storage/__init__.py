"""Resources that keep values between steps: tables, barriers, staging areas, accumulators, maps."""
