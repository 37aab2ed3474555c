"""States of objects are restored unchanged; the error names a value that cannot be saved."""

from collections import Counter, OrderedDict, deque

import numpy as np
import pytest
import torch
from tests.support.checkpoints import same

from outpace.record.checkpoints.tensors import from_bytes, read_tensors, to_bytes
from outpace.record.checkpoints.trees import Unfit, read_tree, write_tree

TREE = {
    "plain": [None, True, 3, -2.5, float("inf"), "text"],
    ("a", 1): {7: (1, [2.0], ())},
    "tensors": [torch.tensor(2.0), torch.arange(6).reshape(2, 3), torch.zeros(0, 3)],
    "half": torch.tensor([0.5], dtype=torch.bfloat16),
    "same memory": torch.ones(4)[1:],
    "milestones": Counter({30: 1, 60: 2}),
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "window": deque([1.0, 2.0], maxlen=2),
    "set": {1, 2},
}


def test_a_tree_comes_back_as_it_was(tmp_path):
    shared = torch.arange(4.0)
    part = write_tree(tmp_path / "kept.safetensors", {**TREE, "twice": [shared, shared[:2]]})
    assert part.file == "kept.safetensors"
    found = read_tree(tmp_path / "kept.safetensors")
    assert same(found.pop("twice"), [shared, shared[:2]])
    assert same(found, TREE)
    assert found["window"].maxlen == 2


@pytest.mark.parametrize("dtype", ["uint32", "float64", "bool", ">i2"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_arrays_keep_dtype_and_shape(dtype, shape, tmp_path):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    write_tree(tmp_path / "kept.safetensors", [array])
    (found,) = read_tree(tmp_path / "kept.safetensors")
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert (found == array).all()
    assert found.flags.writeable


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (lambda: 0, "a builtins.function"),
        (torch.nn.Linear(1, 1), "a torch.nn.modules.linear.Linear"),
        (torch.zeros(2, 2).to_sparse(), "a torch.sparse_coo tensor"),
        (np.array(["x"], dtype=object), "a numpy.ndarray"),
    ],
)
def test_what_cannot_be_kept_is_named_with_its_place(value, named, tmp_path):
    with pytest.raises(Unfit, match=rf"^scheduler\['lambdas'\]\[1\] is {named}, which a"):
        write_tree(tmp_path / "kept.safetensors", {"lambdas": [None, value]}, "scheduler")
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_those_of_a_file(tmp_path):
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.tensor(True),
        "none": torch.zeros(0, 3),
        "turned": torch.randn(2, 3, dtype=torch.float64).t(),
        "half": torch.randn(7).bfloat16(),
        "bytes": torch.arange(5, dtype=torch.uint8),
    }
    data = to_bytes(tensors)
    path = tmp_path / "x.safetensors"
    path.write_bytes(data.numpy().tobytes())
    for found in (read_tensors(path), from_bytes(data)):
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)
    with pytest.raises(OSError, match="no safetensors file"):
        from_bytes(data[:-1])
