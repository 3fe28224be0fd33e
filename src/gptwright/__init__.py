"""gptwright plans, trains and honestly diagnoses small GPTs on the machine a person has."""

__version__ = "0.1.0"
