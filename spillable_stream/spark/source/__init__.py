"""The source: what a query reads, how far, and as which group."""
