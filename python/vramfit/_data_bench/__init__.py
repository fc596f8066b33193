"""How fast this machine reads a file for training: our loader beside what else is installed.

Run by ``vramfit data bench`` in a Python of its own, so that whatever the others load or leave
behind is gone afterwards. One JSON object on the command line says what to do; lines of JSON on
standard output tell how far it is, and what came out.
"""
