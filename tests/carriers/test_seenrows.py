"""What stood in the earlier rows of a file."""

from carriers.seenrows import SeenRow, SeenRows


def test_accepted_rows_are_found_again():
    first, second = SeenRow("1", 2, "a"), SeenRow("2", 3, "b")

    with SeenRows() as seen:
        seen.add([first, second])

        assert seen.find(["1", "3"]) == {"1": first}


def test_nothing_is_found_for_nothing():
    with SeenRows() as seen:
        assert seen.find([]) == {}
