"""Neural networks: convolutions, pooling, normalisation, losses, recurrent cells."""
