"""What is held on the disk: the harness's cache, uv's cache behind it, and how to make room."""
