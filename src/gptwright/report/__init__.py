"""Facts and records as people see them."""
