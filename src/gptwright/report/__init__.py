"""Facts, plans, diagnoses and records as people see them: terminal, JSON, pages, pictures, loggers."""
