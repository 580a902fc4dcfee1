"""``./run demo``: the product at work on one host, with simulated carriers.

``__main__`` reads the options and puts the parts together: ``alone`` (one demonstration per folder), ``ports``, ``preparation``
(accounts, cards, login), ``processes`` (what runs), ``supervisor`` (starts, restarts and stops it), ``figures`` and ``table``
(what is shown).
"""
