"""The directory that ``vramfit dryrun`` puts first on the path of the user's Python."""
