"""Loggers: views of `metrics.jsonl` for TensorBoard and Weights & Biases, off unless a setting asks for them.

    tensorboard=True    event files in RUN/tensorboard
    wandb_log=True      a W&B run, under wandb_project and wandb_run_name; WANDB_MODE=offline works

They follow the file in threads of their own, so a logger that fails or hangs costs the run nothing. Both
need the extra `log`.
"""
