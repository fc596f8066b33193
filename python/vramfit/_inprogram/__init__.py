"""What runs inside the user's program: plugin, publisher, names, hosts, checkpoints."""
