"""The Django project and the polling engine."""

__version__ = "0.1.0"
