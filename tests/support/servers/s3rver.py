"""A server that speaks S3 and ignores conditions, where it is installed: ``npm install -g s3rver``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from demo.cluster.processes import LOOPBACK, serving
from tests.support.servers.process import program

__all__ = ["S3RVER_ENVIRONMENT", "s3rver_server"]

S3RVER_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "S3RVER",
    "AWS_SECRET_ACCESS_KEY": "S3RVER",
    "AWS_REGION": "us-east-1",
}


@contextlib.contextmanager
def s3rver_server(directory: Path, bucket: str) -> Iterator[str]:
    """Run the server with one bucket and yield its address."""
    found = program("s3rver", "S3RVER", "the npm package s3rver")
    objects = directory / "objects"
    objects.mkdir()
    flags = ["--directory", str(objects), "--address", LOOPBACK, "--configure-bucket", bucket, "--no-vhost-buckets"]
    with serving(lambda port: [found, "--port", str(port), *flags], directory / "s3rver.log") as port:
        yield f"http://{LOOPBACK}:{port}"
