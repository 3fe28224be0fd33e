"""What a run will need and cost, before anything is spent."""
