"""Label images with a model that learns along: the session, without any web page."""
