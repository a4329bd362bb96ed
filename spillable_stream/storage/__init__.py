"""The seam to the file system: the only place of this package that touches files."""
