"""What is where: texture maps of large images."""
