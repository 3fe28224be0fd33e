"""Training: choices about precision, the loop, evaluation and checkpoints."""
