"""The rules: one file a family, each rule a function from a reading to findings."""
