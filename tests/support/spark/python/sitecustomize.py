"""Let Spark's Pythons be forked, beside what `demo/cluster/python` does for each Python."""

import os
import sys

_OTHER = os.path.join(os.path.dirname(__file__), *[os.pardir] * 4, "demo", "cluster", "python", "sitecustomize.py")

with open(_OTHER) as _file:
    exec(compile(_file.read(), _OTHER, "exec"))

if any(part.startswith("pyspark.") for part in sys.orig_argv[2:3]):
    import spark_fork_server

    if spark_fork_server.is_served():
        spark_fork_server.run_in_a_fork()
