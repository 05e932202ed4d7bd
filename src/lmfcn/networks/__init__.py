"""Networks beside the paper's own: pretrained ones, and those that a user brings."""
