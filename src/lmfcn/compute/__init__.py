"""Computing: encoding, convolutions, devices, threads, worker processes."""
