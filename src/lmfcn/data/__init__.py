"""Images and labels: files, collections, splits, leaks, data sets."""
