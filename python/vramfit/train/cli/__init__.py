"""What `vramfit train` runs in Python: a request in JSON becomes a call of `fit`."""
