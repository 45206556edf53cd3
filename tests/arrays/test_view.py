"""A caller's arrays of any kind become views without a copy, and outputs come back as the first input's kind."""

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
from helpers.calls import FakeProvider, OnDevice, WithInterface, arguments, message, run_any

import gradkern
from gradkern import ArgumentError, DeviceError, DTypeError, OutputError, ProviderError
from gradkern.contract import request
from gradkern.contract.binder import Binder

GELU, CONV = "BiasGeluGrad_dX", "ConvGrad"


def read(provider: FakeProvider, X: Any) -> np.ndarray:
    """What the provider sees of X."""
    gradkern.run(GELU, **arguments(GELU, X=X))
    return provider.plans[-1].runs[-1][0][1]


def ramp(dtype: Any = np.float32) -> np.ndarray:
    return np.arange(240, dtype=np.float32).reshape(6, 40).astype(dtype)


# --- NumPy -----------------------------------------------------------------------------------------------------------


def unaligned() -> np.ndarray:
    array = np.zeros(961, np.uint8)[1:].view(np.float32).reshape(6, 40)
    array[...] = ramp()
    return array


LAYOUTS: dict[str, Callable[[], np.ndarray]] = {
    "C order": ramp,
    "Fortran order": lambda: np.asfortranarray(ramp()),
    "every second": lambda: np.repeat(ramp(), 2, axis=1)[:, ::2],
    "backwards": lambda: ramp()[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda: np.broadcast_to(np.float32(3), (6, 40)),
    "read-only": lambda: np.frombuffer(ramp().tobytes(), np.float32).reshape(6, 40),
    "unaligned": unaligned,
    "a subclass": lambda: ramp().view(np.recarray),
    "a matrix": lambda: np.matrix(ramp()),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_numpy_arrays_are_taken_as_they_lie(provider: FakeProvider, make: Callable[[], np.ndarray]) -> None:
    array = make()
    seen = read(provider, array)
    assert type(seen) is np.ndarray
    assert np.shares_memory(seen, array)
    assert (seen.strides, seen.dtype) == (array.strides, array.dtype)
    np.testing.assert_array_equal(seen, np.asarray(array))
    tensor = provider.calls[0].inputs["X"]
    assert (tensor.shape, tensor.strides) == (array.shape, array.strides)
    assert tensor.alignment == (1 if make is unaligned else 4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_every_type_of_the_registry_is_a_numpy_type(provider: FakeProvider, dtype: Any) -> None:
    given = {key: array.astype(dtype) for key, array in arguments(GELU).items()}
    result = gradkern.run(GELU, **given)
    assert type(result.dX) is np.ndarray
    assert result.dX.dtype == dtype
    assert result.dX.flags.writeable


def test_scalars_and_empty_arrays_are_arrays(provider: FakeProvider) -> None:
    expected = f"{GELU}: input X has shape (): rank 0; expected rank 2, (rows (1), columns)"
    assert message(gradkern.ShapeError, gradkern.run, GELU, **arguments(GELU, X=np.float32(1))) == expected
    empty = np.zeros((0, 40), np.float32)
    assert gradkern.run(GELU, **arguments(GELU, dY=empty, X=empty)).dX.shape == (0, 40)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)])
def test_outputs_have_the_memory_order_of_their_model(provider: FakeProvider, order: tuple[int, ...]) -> None:
    given = arguments(CONV)
    given["X"] = np.ascontiguousarray(given["X"].transpose(order)).transpose(np.argsort(order))
    result = gradkern.run(CONV, **given)
    assert result.dX.strides == given["X"].strides
    assert result.dW.flags.c_contiguous


@pytest.mark.parametrize("make", [LAYOUTS["every second"], LAYOUTS["backwards"], LAYOUTS["broadcast"]])
def test_outputs_like_an_array_with_gaps_are_in_c_order(provider: FakeProvider, make: Callable[[], np.ndarray]) -> None:
    assert gradkern.run(GELU, **arguments(GELU, X=make())).dX.flags.c_contiguous


# --- DLPack and __array_interface__ ----------------------------------------------------------------------------------


def test_arrays_of_the_array_api_give_arrays_of_their_own_kind(provider: FakeProvider) -> None:
    given = {key: array_api_strict.asarray(array) for key, array in arguments(GELU).items()}
    result = run_any(GELU, **given)
    assert type(result.dX) is type(given["X"])
    assert result.dX.shape == (6, 40)
    assert bool(array_api_strict.all(result.dX == 1))
    assert np.shares_memory(np.from_dlpack(given["X"]), provider.plans[0].runs[0][0][1])


def test_the_first_input_decides_the_kind_also_when_the_plan_is_warm(provider: FakeProvider) -> None:
    given = arguments(GELU)
    strict = array_api_strict.asarray(given["dY"])
    for _ in range(2):
        assert type(gradkern.run(GELU, **given).dX) is np.ndarray
        assert type(gradkern.run(GELU, **{**given, "dY": strict}).dX) is type(strict)
    assert len(provider.calls) == 1


def test_an_out_array_of_the_array_api_is_written_and_returned(provider: FakeProvider) -> None:
    out = array_api_strict.zeros((6, 40), dtype=array_api_strict.float32)
    assert gradkern.run(GELU, **arguments(GELU), out={"dX": out}).dX is out
    assert bool(array_api_strict.all(out == 1))


def test_an_object_with_an_array_interface_is_taken_as_it_lies(provider: FakeProvider) -> None:
    array = ramp()[:, ::-1]
    seen = read(provider, WithInterface(array))
    assert np.shares_memory(seen, array)
    assert seen.strides == array.strides


def test_an_out_object_with_an_array_interface_is_written(provider: FakeProvider) -> None:
    array = ramp()
    out = WithInterface(array)
    assert gradkern.run(GELU, **arguments(GELU), out={"dX": out}).dX is out
    assert (array == 1).all()
    sealed = WithInterface(array, data=(array.__array_interface__["data"][0], True))
    expected = f"{GELU}: out dX is read-only"
    assert message(OutputError, gradkern.run, GELU, **arguments(GELU), out={"dX": sealed}) == expected


class Copying:
    """A library whose DLPack refuses, and whose __array__ makes a copy: JAX's bfloat16, seen from NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("bfloat16 is not supported")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array.copy()


def test_an_array_that_only_copies_out_is_read_and_never_written(provider: FakeProvider) -> None:
    given = {key: array.astype(ml_dtypes.bfloat16) for key, array in arguments(GELU).items()}
    given["X"] = Copying(given["X"])
    assert gradkern.run(GELU, **given).dX.dtype == ml_dtypes.bfloat16
    expected = f"{GELU}: out dX is read-only"
    assert message(OutputError, gradkern.run, GELU, **given, out={"dX": given["X"]}) == expected


# --- what is no array, or is elsewhere -------------------------------------------------------------------------------

TAKEN = "(NumPy, PyTorch, __dlpack__ or __array_interface__)"


class Broken(OnDevice):
    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("the device is lost")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([[1.0]], f"is of type list; expected an array {TAKEN}"),
        (1.0, f"is of type float; expected an array {TAKEN}"),
        ("X", f"is of type str; expected an array {TAKEN}"),
        (memoryview(b""), f"is of type memoryview; expected an array {TAKEN}"),
        (
            np.ma.masked_array(ramp()),
            "is a masked array, whose mask would be lost; pass .filled(...) or .data",
        ),
        (
            OnDevice(ramp(), (1, 0)),
            "is a helpers.calls.OnDevice that DLPack cannot hand to NumPy: its elements are elsewhere",
        ),
        (OnDevice(ramp(), (7, 0)), "is a helpers.calls.OnDevice on DLPack device 7; expected the CPU or CUDA"),
        (Broken(ramp(), (1, 0)), f"is a {__name__}.Broken whose __dlpack_device__ fails: the device is lost"),
        (WithInterface(ramp(), typestr="<f5"), None),
        (WithInterface(ramp(), shape="x"), None),
        (WithInterface(ramp(), data=None), None),
    ],
)
def test_what_is_no_array_is_refused(provider: FakeProvider, value: Any, expected: str | None) -> None:
    text = message(ArgumentError, gradkern.run, GELU, **arguments(GELU, X=value))
    if expected is None:  # the rest is NumPy's reason
        assert text.startswith(f"{GELU}: input X has an __array_interface__ that NumPy refuses: ")
    else:
        assert text == f"{GELU}: input X {expected}"


@pytest.mark.parametrize("name", ["dY", "X", "B"])
def test_arrays_of_different_devices_are_refused_with_the_place_of_each(provider: FakeProvider, name: str) -> None:
    given = arguments(GELU)
    given[name] = OnDevice(given[name], (2, 1))
    places = ", ".join(f"input {key} on {'cuda:1' if key == name else 'cpu'}" for key in given)
    expected = f"{GELU}: the arrays are on different devices: {places}"
    assert message(DeviceError, gradkern.run, GELU, **given) == expected


def test_arrays_of_two_gpus_are_refused(provider: FakeProvider) -> None:
    given = {key: OnDevice(array, (2, number)) for number, (key, array) in enumerate(arguments(GELU).items())}
    expected = f"{GELU}: the arrays are on different devices: input dY on cuda:0, input X on cuda:1, input B on cuda:2"
    assert message(DeviceError, gradkern.run, GELU, **given) == expected


def test_an_out_array_of_another_device_is_refused(provider: FakeProvider) -> None:
    out = {"dX": OnDevice(ramp(), (2, 0))}
    expected = f"{GELU}: out dX is on cuda:0, but input dY on cpu"
    assert message(DeviceError, gradkern.run, GELU, **arguments(GELU), out=out) == expected


def test_arrays_on_a_device_without_provider_are_refused(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = replace(gradkern.operators()[GELU], providers={"cpu": ("cpu",)})
    monkeypatch.setitem(request._binders, GELU, Binder(GELU, alone))
    given = {key: OnDevice(array, (2, 0)) for key, array in arguments(GELU).items()}
    expected = f"{GELU}: the arrays are on cuda:0; registered providers are cpu"
    assert message(ProviderError, gradkern.run, GELU, **given) == expected


# --- PyTorch ---------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_torch_tensors_of_every_type_go_in_and_come_out_without_a_copy(provider: FakeProvider, name: str) -> None:
    import torch

    given = {key: torch.tensor(array).to(getattr(torch, name)) for key, array in arguments(GELU).items()}
    result = run_any(GELU, **given, outputs=["dX", "dB"])
    for output, value in (("dX", 1), ("dB", 2)):
        assert getattr(result, output).dtype == getattr(torch, name)
        assert bool((getattr(result, output) == value).all())
    seen = provider.plans[0].runs[0][0][1]
    assert seen.dtype.name == name
    assert seen.__array_interface__["data"][0] == given["X"].data_ptr()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_tensors_of_any_strides_are_taken_and_channels_last_comes_back(provider: FakeProvider, name: str) -> None:
    import torch

    given = arguments(CONV)
    for key in ("dY", "X", "W"):
        given[key] = torch.tensor(given[key]).to(getattr(torch, name)).to(memory_format=torch.channels_last)
    result = gradkern.run(CONV, **given)
    assert result.dX.is_contiguous(memory_format=torch.channels_last)
    assert provider.calls[0].inputs["X"].strides == tuple(s * given["X"].itemsize for s in given["X"].stride())


@pytest.mark.torch
def test_a_torch_tensor_is_written_over_where_the_contract_permits_it(provider: FakeProvider) -> None:
    import torch

    given = {key: torch.tensor(array).bfloat16() for key, array in arguments(GELU).items()}
    assert run_any(GELU, **given, out={"dX": given["dY"]}).dX is given["dY"]
    assert bool((given["dY"] == 1).all())


@pytest.mark.torch
def test_a_torch_tensor_that_gradkern_cannot_serve_is_refused() -> None:
    import torch

    tensor = torch.zeros(6, 40)
    refusals = {
        "requires grad, and autograd cannot follow gradkern; detach it: X.detach()": tensor.clone().requires_grad_(),
        "is a tensor of layout torch.sparse_coo; expected a dense one (torch.strided)": tensor.to_sparse(),
        "is a tensor on device meta; expected cpu or cuda": tensor.to("meta"),
        "is a tensor with a lazy sign; pass .resolve_neg().resolve_conj()": torch.zeros(6, 40, dtype=torch.cfloat)
        .conj()
        .imag,
    }
    for expected, value in refusals.items():
        assert message(ArgumentError, gradkern.run, GELU, **arguments(GELU, X=value)) == f"{GELU}: input X {expected}"
    text = message(ArgumentError, gradkern.run, GELU, **arguments(GELU, dY=tensor.clone().requires_grad_()))
    assert text.endswith("detach it: dY.detach()")
    text = message(DTypeError, gradkern.run, GELU, **arguments(GELU, X=tensor.to(torch.float8_e5m2)))
    assert text == f"{GELU}: input X has type float8_e5m2; T allows float32, float64, float16, bfloat16"
    assert message(DTypeError, gradkern.run, GELU, **arguments(GELU, X=tensor.int())) == (
        f"{GELU}: input X has type int32; T allows float32, float64, float16, bfloat16"
    )


# --- objects that fail when they are looked at ------------------------------------------------------------------------


class Hostile:
    """An object whose methods and attributes of these names raise."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_names"]:
            raise ZeroDivisionError(name)
        if name in ("__dlpack__", "__array__"):
            return self._fail
        if name == "__dlpack_device__":
            return lambda: (1, 0)
        raise AttributeError(name)

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise KeyError("elements")


@pytest.mark.parametrize(
    "value",
    [
        Hostile("__dlpack__"),
        Hostile("__dlpack_device__"),
        Hostile("__array_namespace__"),
        Hostile("__array__"),
        Hostile(),
    ],
    ids=["__dlpack__", "__dlpack_device__", "__array_namespace__", "__array__", "elements"],
)
def test_what_an_object_of_the_callers_raises_is_an_error_of_gradkern(value: Any) -> None:
    cases: list[tuple[dict[str, Any], str]] = [({"X": value}, "input X"), ({"out": {"dX": value}}, "out dX")]
    for given, name in cases:
        with pytest.raises(gradkern.GradkernError, match=f"^{GELU}: {name} is a .*Hostile ") as caught:
            gradkern.run(GELU, **arguments(GELU, **given))
        assert caught.value.__cause__ is not None


def test_memory_that_cannot_be_had_is_an_error_of_its_own() -> None:
    class Huge:
        __array_interface__ = property(lambda self: bytearray(1 << 62))

    with pytest.raises(MemoryError):
        gradkern.run(GELU, **arguments(GELU, X=Huge()))


def test_an_array_on_a_gpu_is_refused_with_the_remedy_where_the_packages_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnGpu:
        def __init__(self, *shape: int) -> None:
            self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (4096, False), "version": 3}

    remedy = "cuda.core not installed (pip install 'gradkern[cu13]')"
    for module in ("gradkern.arrays.device", "gradkern.dispatch.planner"):
        monkeypatch.setattr(f"{module}.unavailable", lambda provider: remedy)
    for name in ("cuda", "cuda.bindings", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, None)
    text = message(gradkern.ProviderError, gradkern.run, GELU, dY=OnGpu(6, 40), X=OnGpu(6, 40), B=OnGpu(40))
    assert text == f"{GELU}: provider 'cuda' cannot run here: {remedy}"


# --- libraries of the array API standard ------------------------------------------------------------------------------


class OfLibrary:
    """An array of a library that says what it likes of itself."""

    def __init__(self, array: np.ndarray, namespace: Any) -> None:
        self._array, self._namespace = array, namespace

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return self._namespace


def refuse(array: Any) -> Any:
    raise AttributeError("no such thing")


LIBRARIES: dict[str, tuple[Any, str]] = {
    "without from_dlpack": (SimpleNamespace(asarray=np.asarray), "has no from_dlpack"),
    "without anything": (object(), "has no from_dlpack"),
    "from_dlpack that is no function": (SimpleNamespace(from_dlpack=1), "has no from_dlpack"),
    "that cannot be hashed": (SimpleNamespace(from_dlpack=np.from_dlpack), "unhashable"),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["dY", "X", "B"])
def test_an_array_of_a_library_that_cannot_take_outputs_is_refused(
    library: str, name: str, provider: FakeProvider
) -> None:
    namespace, reason = LIBRARIES[library]
    given = arguments(GELU)
    with pytest.raises(gradkern.ArgumentError, match=f"^{GELU}: input {name} is a .*OfLibrary .*{reason}"):
        gradkern.run(GELU, **{**given, name: OfLibrary(given[name], namespace)})
    assert provider.calls == [], "nothing is computed"


class Library:
    """A namespace, as a module is."""

    def __init__(self, from_dlpack: Any = np.from_dlpack, asarray: Any = np.asarray) -> None:
        self.from_dlpack, self.asarray, self.__name__ = from_dlpack, asarray, "somelib"


def test_what_a_library_raises_when_it_gets_an_output_is_an_error_of_gradkern(provider: FakeProvider) -> None:
    given = arguments(GELU)
    result = gradkern.run(GELU, **{**given, "dY": OfLibrary(given["dY"], Library(refuse))})
    assert type(result.dX) is np.ndarray
    with pytest.raises(
        gradkern.GradkernError, match=rf"^{GELU}: somelib.asarray does not take an output: Attr"
    ) as caught:
        gradkern.run(GELU, **{**given, "dY": OfLibrary(given["dY"], Library(refuse, refuse))})
    assert isinstance(caught.value.__cause__, AttributeError)


def test_libraries_that_are_made_anew_for_every_call_are_not_kept(provider: FakeProvider) -> None:
    given = arguments(GELU)
    made: list[weakref.ref[Any]] = []
    plan = gradkern.prepare(GELU, **given)

    def call() -> None:
        library = Library()
        made.append(weakref.ref(library))
        again = {**given, "dY": OfLibrary(given["dY"], library)}
        gradkern.run(GELU, **again)
        plan(**again)

    for _ in range(300):
        call()
    gc.collect()
    assert sum(each() is not None for each in made) <= 130


@pytest.mark.torch
def test_a_type_that_numpy_does_not_have_is_refused_on_every_device() -> None:
    import torch

    from gradkern.arrays import device
    from gradkern.arrays.view import view

    with pytest.raises(ArgumentError, match=r"X is a tensor of type torch.bits16, which NumPy does not have"):
        view(torch.empty(2, dtype=torch.bits16), "X")
    there: Any = SimpleNamespace(
        dtype=torch.bits16, shape=(2,), data_ptr=lambda: 16, is_contiguous=lambda: True, get_device=lambda: 0
    )
    with pytest.raises(TypeError):
        device.of_torch(there)
    there.dtype = torch.complex64
    assert device.of_torch(there).tensor.dtype == np.complex64  # no operator takes it, as the contract says
