"""Behind ``./run``: prepares the virtual environment, then becomes the demonstration or the tests.

Runs with the Python of the host, so only the standard library is there.
"""
