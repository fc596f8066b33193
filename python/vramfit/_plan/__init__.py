"""Plans: make a program fit on a GPU without editing it."""
