"""Pure functions of numbers: parameters, FLOPs, memory, scaling laws, reference curves, trends, noise."""
