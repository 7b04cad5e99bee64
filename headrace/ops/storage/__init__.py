"""What keeps values between steps: tables, barriers, staging areas, accumulators, maps."""
