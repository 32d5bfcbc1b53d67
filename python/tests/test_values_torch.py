"""torch tensors on the CPU."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from values_support import attempt, mutations, private_pages, round_trip, stored

from phalanx import _values as values
from phalanx import exceptions

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def no_warnings():
    """Fail on the warning about read-only memory: a later write to such a tensor would crash."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def in_private_pages(value, **how):
    """Return the value that a reader gets by default, over private pages if the metadata asks for them."""
    encoded = values.encode(value, **how)
    assert values.wants_private_pages(encoded.metadata)
    pages = private_pages(encoded)
    return values.decode(encoded.metadata, pages, **how), pages


def is_inside(tensor, pages):
    begin = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    return begin <= tensor.data_ptr() < begin + len(pages)


def assert_same_tensor(expected, actual):
    assert type(actual) is type(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.requires_grad == expected.requires_grad
    assert torch.equal(actual, expected)


DTYPES = [
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64".split(),
    "float16 bfloat16 float32 float64 complex64 complex128".split(),
]


@pytest.mark.parametrize("name", sum(DTYPES, []))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)], ids=str)
def test_a_tensor_is_decoded_as_a_writable_view_without_pickle(name, shape):
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(getattr(torch, name))
    back, pages = in_private_pages(tensor, allow_pickle=False)
    assert_same_tensor(tensor, back)
    if tensor.numel():
        assert is_inside(back, pages)
        back.zero_()
        assert not any(pages)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats(name):
    tensor = torch.arange(4.0).to(getattr(torch, name))
    back, _ = in_private_pages(tensor, allow_pickle=False)
    assert back.dtype == tensor.dtype
    assert torch.equal(back.to(torch.float32), tensor.to(torch.float32))


def test_the_order_of_axes_is_kept():
    image = torch.arange(120.0).reshape(2, 3, 4, 5)
    for tensor in (
        image.to(memory_format=torch.channels_last),
        image.permute(3, 1, 0, 2),
        image[0, 0].T,
    ):
        encoded = values.encode(tensor)
        assert encoded.buffer is not None
        back, _ = in_private_pages(tensor)
        assert_same_tensor(tensor, back)
        assert back.stride() == tensor.stride()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(40.0).reshape(4, 10)[::2, ::3],
        torch.arange(4.0).expand(3, 4),
        torch.ones(3, dtype=torch.complex64).mul(1j).conj(),
        torch.ones(3, dtype=torch.complex64).mul(1j).conj().imag,
    ],
    ids=["strided", "expanded", "conjugate", "negated"],
)
def test_a_tensor_with_gaps_becomes_contiguous(tensor):
    back, _ = in_private_pages(tensor)
    assert_same_tensor(tensor, back)
    assert back.is_contiguous()


def test_a_tensor_that_requires_grad_is_decoded_as_a_leaf_that_does():
    leaf = torch.ones(3, requires_grad=True)
    product = leaf * 2
    for tensor in (leaf, product, leaf.detach()):
        back, _ = in_private_pages(tensor)
        assert back.is_leaf and back.grad_fn is None
        assert back.requires_grad == tensor.requires_grad
        assert torch.equal(back, tensor)


def test_read_only_memory_is_copied_unless_that_is_forbidden():
    encoded = values.encode(torch.arange(4))
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    back.add_(1)
    assert values.decode(encoded.metadata, data).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="copy=False"):
        values.decode(encoded.metadata, data, copy=False)
    copied = values.decode(encoded.metadata, private_pages(encoded), copy=True)
    assert copied.tolist() == [0, 1, 2, 3]


def test_a_tensor_holds_its_memory():
    encoded = values.encode(torch.arange(4))
    pages = bytearray(encoded.nbytes)
    encoded.write_into(memoryview(pages))
    part = values.decode(encoded.metadata, memoryview(pages))[1:]
    with pytest.raises(BufferError):
        pages.clear()
    del part
    pages.clear()


def test_a_target_is_released_after_writing():
    for tensor in (torch.arange(40)[::2], torch.arange(4)):
        encoded = values.encode(tensor)
        pages = bytearray(encoded.nbytes)
        view = memoryview(pages)
        encoded.write_into(view)
        view.release()
        pages.clear()


def test_parameters_and_modules_are_pickled_with_their_bytes_aside():
    parameter = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
    back, pages = in_private_pages(parameter)
    assert_same_tensor(parameter, back)
    assert is_inside(back, pages)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    model.tied = model[0].weight
    encoded = values.encode(model)
    back, pages = in_private_pages(model)
    assert back.tied is back[0].weight
    assert all(is_inside(each, pages) for each in back.parameters())
    assert encoded.nbytes < 64 * 64 * 4 + 20_000
    with torch.no_grad():
        back[0].weight.add_(1)
    back(torch.ones(2, 64)).sum().backward()
    from_read_only = values.decode(encoded.metadata, stored(encoded))
    assert torch.equal(from_read_only[0].weight, model[0].weight)


def test_tensors_inside_pickled_values():
    value = {
        "lr": 0.1,
        "step": torch.tensor(3),
        "strided": torch.arange(10)[::2],
        "conj": torch.ones(2, dtype=torch.complex64).mul(1j).conj(),
        "empty": torch.zeros(0, 2),
        "sparse": torch.eye(3).to_sparse(),
        "array": np.arange(3),
    }
    back, pages = in_private_pages(value)
    for key in ("step", "strided", "conj", "empty"):
        assert_same_tensor(value[key], back[key])
    assert is_inside(back["step"], pages)
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert back["array"].flags.writeable


def test_sparse_and_quantized_tensors_need_pickle():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(round_trip(sparse).to_dense(), torch.eye(3))
    with pytest.raises(exceptions.PickleRefusedError):
        values.encode(sparse, allow_pickle=False)


def test_a_tensor_on_another_device_is_refused_by_name():
    tensor = torch.zeros(2, device="meta")
    for value in (tensor, {"a": tensor}, {"a": tensor, "b": 1}):
        with pytest.raises(TypeError, match="on meta: only CPU tensors"):
            values.encode(value)


# ---- state dicts


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def test_a_state_dict_is_a_tree_that_loads_and_reduces():
    states = [model().state_dict() for _ in range(3)]
    encoded = [values.encode(state, allow_pickle=False) for state in states]
    assert len({each.metadata for each in encoded}) == 1
    assert values.reduce_dtype(encoded[0].metadata) == "f32"
    back, pages = in_private_pages(states[0], allow_pickle=False)
    assert type(back) is type(states[0]) and back._metadata == states[0]._metadata
    assert all(is_inside(each, pages) for each in back.values())
    model().load_state_dict(back)
    total = sum(np.frombuffer(stored(each), np.float32) for each in encoded)
    reduced = values.decode(encoded[0].metadata, memoryview(bytearray(total.tobytes())))
    for key, tensor in reduced.items():
        torch.testing.assert_close(tensor, sum(state[key] for state in states))


def test_a_state_dict_of_two_dtypes_has_a_range_for_each():
    state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict()
    spec, _ = values.flatten(state)
    assert [group.dtype for group in spec.groups] == ["f32", "i64"]


def test_arrays_beside_tensors():
    value = {"t": torch.arange(3), "a": np.arange(3)}
    encoded = values.encode(value)
    pages = private_pages(encoded)
    back = values.decode(encoded.metadata, pages, writable=False)
    back["t"].add_(1)
    assert not back["a"].flags.writeable
    assert values.decode(encoded.metadata, pages)["a"].flags.writeable
    assert values.reduce_dtype(encoded.metadata) == "i64"
    lazy = values.open_tree(encoded.metadata, stored(encoded))
    assert lazy["t"].add_(1).tolist() == [1, 2, 3]


def test_copying_into_a_tensor_of_the_callers():
    tensor = torch.arange(6.0).reshape(2, 3)
    encoded = values.encode(tensor)
    data = stored(encoded)
    for out in (torch.zeros(2, 3), torch.zeros(3, 2).T, torch.zeros(2, 6)[:, ::2]):
        values.copy_into(encoded.metadata, data, out)
        assert torch.equal(out, tensor)
    with pytest.raises(ValueError, match="float32"):
        values.copy_into(encoded.metadata, data, torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match="torch tensor"):
        values.copy_into(encoded.metadata, data, np.zeros((2, 3), "f4"))


@pytest.mark.parametrize(
    ("name", "reduced"),
    [
        ("bfloat16", "bf16"),
        ("float16", "f16"),
        ("uint8", "u8"),
        ("int64", "i64"),
        ("uint32", "u32"),
    ],
)
def test_names_for_reductions(name, reduced):
    metadata = values.encode(torch.zeros(2, dtype=getattr(torch, name))).metadata
    assert values.reduce_dtype(metadata) == reduced


@pytest.mark.parametrize("name", ["bool", "uint16", "complex64"])
def test_dtypes_that_do_not_reduce_are_named(name):
    metadata = values.encode(torch.zeros(2, dtype=getattr(torch, name))).metadata
    with pytest.raises(TypeError, match=name):
        values.reduce_dtype(metadata)


def test_mutated_metadata_is_an_error_or_another_value():
    for value in (torch.arange(4, dtype=torch.bfloat16), {"a": torch.ones(3).requires_grad_()}):
        encoded = values.encode(value)
        data = bytes(stored(encoded))
        for metadata in mutations(encoded.metadata, 500):
            attempt(metadata, data)


def test_torch_is_imported_only_for_tensors_and_named_if_missing():
    encoded = values.encode(torch.arange(3))
    tree = values.encode({"a": torch.arange(3)})
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
import numpy as np
from phalanx import _values
array = _values.encode(np.arange(3))
_values.decode(array.metadata, array.buffer)
tree = _values.encode([np.arange(3), "x"])
assert "torch" not in sys.modules
for metadata in ({encoded.metadata!r}, {tree.metadata!r}):
    assert _values.wants_private_pages(metadata)
    assert _values.reduce_dtype(metadata) == "i64"
    assert "torch" not in sys.modules
    sys.modules["torch"] = None
    try:
        _values.decode(metadata, memoryview(bytearray(24)))
    except ImportError as error:
        assert "phalanx[torch]" in str(error)
    else:
        raise AssertionError("decoded without torch")
    del sys.modules["torch"]
"""
    subprocess.run([sys.executable, "-c", script], check=True)
