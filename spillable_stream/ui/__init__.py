"""The web page: channels in a browser."""
