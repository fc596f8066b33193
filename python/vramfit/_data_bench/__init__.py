"""How fast this machine reads a file for training: vramfit's loader and other packages.

Run by ``vramfit data bench`` in its own process, so that whatever other packages load or leave
behind is gone afterwards. The options are a JSON object on the command line; lines of JSON on
standard output report progress and the result.
"""
