"""The admin of accounts, packages, cards and their history."""

from carriers.admin import accounts, cards, history, packages  # noqa: F401  (each registers its models)
