"""Independent tasks: one after the other in this process, in several processes, or on many machines."""

from lmfcn.distribution.parallel import LostWorkerError, as_completed, use_workers
from lmfcn.distribution.threads import WithThreads

__all__ = ["LostWorkerError", "WithThreads", "as_completed", "use_workers"]
