"""Our own compiled code for a training step on a CPU, and how it is built and called."""
