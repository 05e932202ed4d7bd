"""From what users have to checked arrays, and data that is always there."""
