"""Pure functions of numbers: parameters, FLOPs, and the noise of an evaluation."""
