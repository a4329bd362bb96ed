"""Interceptors: what changes, drops or marks events on their way from a source into its channels."""
