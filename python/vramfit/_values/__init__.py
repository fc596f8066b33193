"""Computes small values of a program on JAX's CPU client, for the virtual GPU."""
