"""What the numbers of a run say: rules over evidence, the forecast, and comparison."""
