"""What keeps values between steps: queues, tables, accumulators, staging areas."""
