"""Functions of the API, and the processes that they and the command line start."""
