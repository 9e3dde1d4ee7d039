"""Skew of tensor sizes: it separates the published models, and errors in tables name the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError
from bft.models.speed.skew import THRESHOLD, largest_share, read_tensor_sizes

_TAIL = [8.0, 2.0, 9.0, 4.0, 4.0, 9.0, 4.0, 4.0, 9.0, 4.0, 7.8]
# MiB of the tensors above 1 MiB, as Tiresias' artifact states them.
PUBLISHED = {
    "vgg19": [1.1, 2.3, 2.3, 2.3, 4.5, *[9.0] * 7, 392.0, 64.0, 15.6],
    "vgg16": [1.1, 2.3, 2.3, 4.5, *[9.0] * 5, 392.0, 64.0, 15.6],
    "vgg11": [1.1, 2.3, 4.5, 9.0, 9.0, 9.0, 392.0, 64.0, 15.6],
    "alexnet": [1.2, 2.5, 5.1, 3.4, 144.0, 64.0, 15.6],
    "resnet152": [2.0, *[2.3] * 36, *_TAIL],
    "resnet50": [2.0, *[2.3] * 6, *_TAIL],
}
SKEWED = {"vgg19", "vgg16", "vgg11", "alexnet"}


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_models_are_distinguished(model: str) -> None:
    assert (largest_share(PUBLISHED[model]) >= THRESHOLD) == (model in SKEWED)


sizes = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=40)


@given(sizes, st.floats(1e-3, 1e3))
def test_the_unit_and_the_order_do_not_matter(values: list[float], unit: float) -> None:
    changed = largest_share([value * unit for value in values[::-1]])
    assert changed == pytest.approx(largest_share(values), rel=1e-6)


@given(sizes)
def test_the_share_lies_between_all_alike_and_one_only(values: list[float]) -> None:
    assert 1 / len(values) - 1e-12 <= largest_share(values) <= 1


def test_tables_keep_the_order_of_models(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text("model,tensor,size\nb,x,1\na,y,2\nb,z,3\n")
    assert read_tensor_sizes(path) == {"b": [1, 3], "a": [2]}
    assert list(read_tensor_sizes(path)) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("model,size\n", "has no rows"),
        ("model,bytes\na,1\n", "missing column size"),
        ("a,b\n1,2\n", "missing columns model, size"),
        (
            "model,size\na,1\na,0\n",
            "row 2, column size: expected a finite number > 0, not 0",
        ),
        (
            "model,size\na,x\n",
            "row 1, column size: expected a finite number > 0, not 'x'",
        ),
        ("model,size\n,1\n", "row 1, column model: expected a name, not an empty cell"),
    ],
)
def test_bad_tables_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "layers.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_tensor_sizes(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
