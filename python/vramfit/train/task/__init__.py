"""What a configuration of `vramfit train` describes: data, model, loss and optimizer."""
