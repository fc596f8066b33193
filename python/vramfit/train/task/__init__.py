"""What a configuration of `vramfit train` describes: data, model, loss, optimizer and their step."""
