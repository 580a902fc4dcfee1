"""How many of a process's card places one account may hold: decisions without I/O.

The rule is the *dynamic threshold* known from shared switch buffers: an account may take a place while it holds no more than
what is left free, and never less than its even share. One account alone gets half of the places; n accounts whose gateways
hang get ``1 / (n + 1)`` each, so that a place for the next account is always left; and whatever the others do, an account
below ``places / accounts`` is served as soon as a place is free.
"""


def may_take(*, held: int, free: int, places: int, accounts: int, wanted: int = 1) -> bool:
    """Whether an account that holds ``held`` places may start a job of ``wanted`` cards.

    ``free`` is what nobody holds now, ``places`` the process's total and ``accounts`` the number of enabled accounts. The
    total is never exceeded; a job larger than the whole process is let in when the process is empty.
    """
    if free < min(wanted, places):
        return False
    even_share = max(1, places // max(1, accounts))
    return held < max(even_share, free)
