"""What we add to the paper: phases, final SVM, whitening, first filters, calibration, checkpoints."""
