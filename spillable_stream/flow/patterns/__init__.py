"""Java's regular expressions on columns of texts."""
