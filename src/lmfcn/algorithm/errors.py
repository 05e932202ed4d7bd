"""What training says when it cannot go on."""


class TrainingError(RuntimeError):
    """Training cannot go on: a quantity is not finite, or all latents coincide."""


class TrainingWarning(UserWarning):
    """Training ended or went on in a way that the user should know about."""
