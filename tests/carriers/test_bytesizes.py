"""One converter between bytes and what people write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carriers import bytesizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1,024 MB", 1_073_741_824),
        ("1 GB", 1_073_741_824),
        ("1.5GB", 1_610_612_736),
        ("1gib", 1_073_741_824),
        ("10M", 10_485_760),
        ("1048576", 1_048_576),
        ("0", 0),
    ],
)
def test_sizes_are_read(text, size):
    assert bytesizes.parse(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.5", "one", "1 XB", "1e3", "٣ MB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="not a size"):
        bytesizes.parse(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KB"),
        (1_073_741_823, "1,023.99 MB"),
        (1_073_741_824, "1 GB"),
        (1_610_612_736, "1.5 GB"),
    ],
)
def test_sizes_are_shown_with_their_unit(size, text):
    assert bytesizes.display(size) == text


@given(st.integers(min_value=0, max_value=10**18))
def test_an_exact_size_is_read_back(size):
    assert bytesizes.parse(bytesizes.exact(size)) == size
