"""Resources that keep values between steps: queues, tables, accumulators, staging areas."""
