"""A run behind HTTP: predictions, the rows that voted, teaching and forgetting, and a page."""
