"""Arrays on a GPU, whoever made them: taken as they lie, on their framework's stream, and given back in kind."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.calls import prepare_any, run_any
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern

pytestmark = pytest.mark.gpu

NAME = "LayerNormalizationGrad"


def host_inputs(rows: int = 37, columns: int = 256, dtype: str = "float32") -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "Y_grad": random.standard_normal((rows, columns)).astype(dtype),
        "X": random.standard_normal((rows, columns)).astype(dtype),
        "scale": random.standard_normal(columns).astype(dtype),
        "mean": random.standard_normal(rows).astype(np.float32),
        "inv_std_dev": random.uniform(0.5, 2, rows).astype(np.float32),
    }


def by_torch() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray], str]:
    torch = pytest.importorskip("torch")

    def there(array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(array).cuda()

    def back(tensor: Any) -> np.ndarray:
        assert tensor.is_cuda
        return tensor.float().cpu().numpy()

    return there, back, "torch"


def by_cupy() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray], str]:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray, lambda array: cupy.asnumpy(array).astype(np.float32), "cupy"


def by_jax() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray], str]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or tests beside this one find no memory
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    return jax.numpy.asarray, lambda array: np.asarray(array).astype(np.float32), "jax"


def by_numba() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray], str]:
    cuda = pytest.importorskip("numba.cuda")
    return cuda.to_device, lambda array: array.copy_to_host().astype(np.float32), "numba"


FRAMEWORKS = {"torch": by_torch, "cupy": by_cupy, "jax": by_jax, "numba": by_numba}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_arrays_of_every_framework_are_taken_and_come_back_in_kind(framework: str, dtype: str) -> None:
    if dtype == "bfloat16" and framework in ("cupy", "numba"):
        pytest.skip(f"{framework} has no bfloat16 of its own")
    there, back, module = FRAMEWORKS[framework]()
    inputs = host_inputs(dtype=dtype)
    result = gradkern.run(NAME, **{key: there(array) for key, array in inputs.items()})
    expected = reference(NAME, inputs, {})
    for key, array in result._asdict().items():
        assert type(array).__module__.split(".")[0].removesuffix("lib") == module
        assert_close(NAME, key, back(array).astype(dtype), expected[key])


def test_host_arrays_with_the_provider_named_are_copied_there_and_back() -> None:
    inputs = host_inputs()
    inputs["X"] = np.asfortranarray(inputs["X"])
    result = run_any(NAME, **inputs, provider="cuda")
    expected = reference(NAME, inputs, {})
    for key, array in result._asdict().items():
        assert type(array) is np.ndarray
        assert_close(NAME, key, array, expected[key])
    assert prepare_any(NAME, **inputs, provider="cuda").provider == "cuda"


def test_a_named_cpu_refuses_arrays_on_a_gpu() -> None:
    there, _, _ = by_torch()
    with pytest.raises(gradkern.ProviderError, match="provider 'cpu' was asked for, but the arrays are on cuda:0"):
        gradkern.run(NAME, **{key: there(array) for key, array in host_inputs().items()}, provider="cpu")


def test_arrays_on_the_host_and_on_a_gpu_are_refused_together() -> None:
    there, _, _ = by_torch()
    inputs: dict[str, Any] = {key: there(array) for key, array in host_inputs().items()}
    inputs["scale"] = inputs["scale"].cpu()
    with pytest.raises(gradkern.DeviceError, match="input scale on cpu"):
        gradkern.run(NAME, **inputs)


def test_work_runs_on_the_current_stream_and_on_a_given_one() -> None:
    """Behind work that takes long on that stream: on any other, X would not be there yet."""
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = host_inputs(2048, 1024)
    expected = reference(NAME, inputs, {})
    for given in (False, True):
        arrays = {key: there(array) for key, array in inputs.items()}
        wanted = arrays["X"].clone()
        gradkern.run(NAME, **arrays)
        arrays["X"].zero_()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        result: Any = None
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            arrays["X"].copy_(wanted)
            if not given:
                result = gradkern.run(NAME, **arrays)
        if given:
            out = {
                key: torch.empty_like(arrays[like])
                for key, like in (("X_grad", "X"), ("scale_grad", "scale"), ("bias_grad", "scale"))
            }
            torch.cuda.current_stream().synchronize()
            result = run_any(NAME, **arrays, out=out, stream=stream)
        stream.synchronize()
        for key, array in result._asdict().items():
            assert_close(NAME, key, back(array), expected[key])


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_new_outputs_on_a_given_stream_are_not_memory_that_another_stream_still_writes(framework: str) -> None:
    there, back, _ = FRAMEWORKS[framework]()
    library = pytest.importorskip(framework)
    torch = pytest.importorskip("torch")
    inputs = host_inputs(2048, 1024)
    expected = reference(NAME, inputs, {})
    arrays = {key: there(array) for key, array in inputs.items()}
    gradkern.run(NAME, **arrays)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if framework == "torch" else library.cuda.Stream(non_blocking=True)
    torch.cuda._sleep(200_000_000)  # on the legacy default stream, CuPy's too
    freed = [library.empty_like(arrays["X"]) for _ in range(4)]
    each: Any = None
    for each in freed:
        each.fill(7) if framework == "cupy" else each.fill_(7)
    del freed, each
    result = gradkern.run(NAME, **arrays, stream=stream)
    torch.cuda.synchronize()
    for key, array in result._asdict().items():
        assert_close(NAME, key, back(array), expected[key])


def test_a_warm_call_can_be_captured_and_replayed() -> None:
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    arrays = {key: there(array) for key, array in host_inputs(300, 768).items()}
    out = {
        key: torch.empty_like(arrays[like])
        for key, like in (("X_grad", "X"), ("scale_grad", "scale"), ("bias_grad", "scale"))
    }
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run_any(NAME, **arrays, out=out)
    with torch.cuda.graph(graph, stream=stream):
        run_any(NAME, **arrays, out=out)
    fresh = host_inputs(300, 768)
    fresh["Y_grad"] = fresh["Y_grad"][::-1].copy()
    arrays["Y_grad"].copy_(torch.from_numpy(fresh["Y_grad"]))
    graph.replay()
    torch.cuda.synchronize()
    expected = reference(NAME, fresh, {})
    for key, tensor in out.items():
        assert_close(NAME, key, back(tensor), expected[key])


def test_a_graph_may_be_replayed_while_its_capture_stream_runs_other_calls() -> None:
    """With one counter for both, the barriers would count each other's blocks and wait for ever."""
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = [host_inputs(rows, 4096) for rows in (900, 700)]
    inputs[1]["Y_grad"] *= 2
    captured, live = ({key: there(array) for key, array in each.items()} for each in inputs)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    results = []
    with torch.cuda.stream(first):
        gradkern.run(NAME, **captured)  # warm
    for graph in graphs:  # on one stream, neither warm nor captured before
        with torch.cuda.graph(graph, stream=first):
            results.append(gradkern.run(NAME, **captured))
    torch.cuda.synchronize()
    for _ in range(200):
        graphs[0].replay()
        with torch.cuda.stream(second):
            graphs[1].replay()
        with torch.cuda.stream(first):
            results.append(gradkern.run(NAME, **live))
    torch.cuda.synchronize()
    expected = [reference(NAME, each, {}) for each in inputs]
    for number, result in enumerate(results):
        for key, tensor in result._asdict().items():
            if number < 4 or number % 20 == 0:
                assert_close(NAME, key, back(tensor), expected[number > 1][key])


def test_a_call_in_a_capture_needs_no_call_on_that_stream_before() -> None:
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = host_inputs(300, 1024)
    arrays = {key: there(array) for key, array in inputs.items()}
    gradkern.run(NAME, **arrays)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = gradkern.run(NAME, **arrays)
    for _ in range(3):
        result.scale_grad.zero_()
        graph.replay()
    torch.cuda.synchronize()
    expected = reference(NAME, inputs, {})
    for key, tensor in result._asdict().items():
        assert_close(NAME, key, back(tensor), expected[key])


def test_out_may_be_an_input_where_the_contract_permits_and_nothing_else_that_overlaps() -> None:
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = host_inputs()
    expected = reference(NAME, inputs, {})
    for source in ("Y_grad", "X"):
        arrays = {key: there(array) for key, array in inputs.items()}
        result = gradkern.run(NAME, **arrays, out={"X_grad": arrays[source]})
        assert result.X_grad is arrays[source]
        for key, array in result._asdict().items():
            assert_close(NAME, key, back(array), expected[key])
    both = torch.zeros(2 * inputs["X"].size, device="cuda")
    rows, columns = inputs["X"].shape
    arrays["X"] = both[: rows * columns].view(rows, columns)
    with pytest.raises(gradkern.OutputError, match="overlaps input X"):
        gradkern.run(NAME, **arrays, out={"X_grad": both[columns : columns + rows * columns].view(rows, columns)})


def test_a_prepared_plan_that_knows_its_tensors_still_looks_at_their_addresses() -> None:
    torch = pytest.importorskip("torch")
    there, _, _ = by_torch()
    arrays = {key: there(array) for key, array in host_inputs().items()}
    out = {key: torch.empty_like(tensor) for key, tensor in gradkern.run(NAME, **arrays)._asdict().items()}
    plan = prepare_any(NAME, **arrays, out=out)
    for _ in range(3):
        assert plan(**arrays, out=out).X_grad is out["X_grad"]
    rows, columns = arrays["X"].shape
    both = torch.zeros(2 * rows * columns, device="cuda")
    here, later = (both[start:][: rows * columns].view(rows, columns) for start in (0, columns))
    refused: list[tuple[type[Exception], str, dict[str, Any], dict[str, Any]]] = [
        (gradkern.OutputError, "out X_grad overlaps input X without", {"X": here}, {"X_grad": later}),
        (gradkern.ArgumentError, "out reuses X for X_grad", {"X": here}, {"X_grad": here}),
        (gradkern.ArgumentError, "out reuses X for X_grad", {"X": here}, {"X_grad": here.view(rows, columns)}),
        (gradkern.OutputError, "overlaps out", {}, {"bias_grad": out["scale_grad"].view(-1)}),
        (gradkern.OutputError, "may be that of no input", {}, {"bias_grad": arrays["scale"].view(-1)}),
        (gradkern.ArgumentError, "alignment 4", {"X": both[1:][: rows * columns].view(rows, columns)}, {}),
        (gradkern.ArgumentError, "requires grad", {"X": arrays["X"].clone().requires_grad_()}, {}),
        (gradkern.ArgumentError, "lazy sign", {"X": torch._neg_view(arrays["X"])}, {}),
        (gradkern.ArgumentError, "type float64", {"X": arrays["X"].double()}, {}),
        (gradkern.DeviceError, "input X on cpu", {"X": arrays["X"].cpu()}, {}),
    ]
    for error, text, inputs, outputs in refused:
        with pytest.raises(error, match=text):
            plan(**{**arrays, **inputs}, out={**out, **outputs})
    with pytest.raises(gradkern.ArgumentError, match="out differs"):
        plan(**arrays)
    assert plan(**arrays, out=out).X_grad is out["X_grad"]


def test_strided_rows_and_unaligned_slices_are_right() -> None:
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = host_inputs(65, 256, "float16")
    expected = reference(NAME, inputs, {})
    arrays = {key: there(array) for key, array in inputs.items()}
    wide = torch.zeros(65, 300, dtype=torch.float16, device="cuda")
    for start in (0, 1, 8):
        part = wide[:, start : start + 256]
        part.copy_(arrays["X"])
        result = gradkern.run(NAME, **{**arrays, "X": part})
        for key, array in result._asdict().items():
            assert_close(NAME, key, back(array).astype(np.float16), expected[key])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_inputs_in_any_memory_order_are_right(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    there, back, _ = by_torch()
    inputs = host_inputs(65, 96, dtype)
    if dtype == "float64":
        inputs = {key: array.astype(np.float64) for key, array in inputs.items()}
    expected = reference(NAME, inputs, {})
    arrays = {key: there(array) for key, array in inputs.items()}
    wide = torch.zeros(96, 2, device="cuda", dtype=arrays["scale"].dtype)
    wide[:, 0] = arrays["scale"]
    arrays |= {"X": arrays["X"].t().contiguous().t(), "scale": wide[:, 0]}
    arrays["mean"] = torch.stack([arrays["mean"], arrays["mean"]], 1)[:, 1]
    result = gradkern.run(NAME, **arrays)
    assert "with copies of X, scale, mean, X_grad" in gradkern.prepare(NAME, **arrays).kernel
    for key, array in result._asdict().items():
        got = array.cpu().numpy() if dtype == "float64" else back(array).astype(dtype)
        assert_close(NAME, key, got, expected[key])


def test_a_plan_is_found_again_for_arrays_of_the_same_signature() -> None:
    there, _, _ = by_torch()
    arrays = {key: there(array) for key, array in host_inputs().items()}
    gradkern.run(NAME, **arrays)
    before = gradkern.plan_cache.statistics()
    gradkern.run(NAME, **{key: array.clone() for key, array in arrays.items()})
    after = gradkern.plan_cache.statistics()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


# --- two GPUs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def second() -> int:
    """The number of a GPU that is not the current one."""
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert torch.cuda.current_device() == 0
    return 1


def on_gpu(index: int, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {key: torch.from_numpy(array).to(f"cuda:{index}") for key, array in inputs.items()}


@pytest.mark.parametrize("columns", [256, 1001, 600_000])
def test_arrays_on_a_gpu_that_is_not_current_are_computed_there(second: int, columns: int) -> None:
    torch = pytest.importorskip("torch")
    inputs = host_inputs(33, columns)
    expected = reference(NAME, inputs, {})
    for index in (second, 0, second):
        arrays = on_gpu(index, inputs)
        plan = gradkern.prepare(NAME, **arrays)
        assert plan.call.device == f"cuda:{index}"
        given = gradkern.run(NAME, **arrays)
        out = {key: torch.empty_like(tensor) for key, tensor in given._asdict().items()}
        for result in (given, plan(**arrays), run_any(NAME, **arrays, out=out)):
            assert torch.cuda.current_device() == 0
            for key, tensor in result._asdict().items():
                assert tensor.get_device() == index
                assert_close(NAME, key, tensor.cpu().numpy(), expected[key])


def test_a_gpu_that_is_not_current_has_its_own_streams_and_captures(second: int) -> None:
    torch = pytest.importorskip("torch")
    inputs = host_inputs(300, 768)
    expected = reference(NAME, inputs, {})
    arrays = on_gpu(second, inputs)
    stream = torch.cuda.Stream(second)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(second)
    result = gradkern.run(NAME, **arrays, stream=stream)
    stream.synchronize()
    with torch.cuda.device(second):
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            captured = gradkern.run(NAME, **arrays)
        graph.replay()
    torch.cuda.synchronize(second)
    for each in (result, captured):
        for key, tensor in each._asdict().items():
            assert_close(NAME, key, tensor.cpu().numpy(), expected[key])


def test_both_gpus_work_at_once_from_threads(second: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch = pytest.importorskip("torch")
    inputs = host_inputs(500, 2048)
    expected = reference(NAME, inputs, {})

    def work(index: int) -> Any:
        arrays = on_gpu(index, inputs)
        results = [gradkern.run(NAME, **arrays) for _ in range(50)]
        torch.cuda.synchronize(index)
        return results[-1]

    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(work, (0, second, 0, second)):
            for key, tensor in result._asdict().items():
                assert_close(NAME, key, tensor.cpu().numpy(), expected[key])


def test_arrays_of_other_frameworks_on_a_gpu_that_is_not_current_come_back_there(second: int) -> None:
    cupy = pytest.importorskip("cupy")
    inputs = host_inputs()
    expected = reference(NAME, inputs, {})
    with cupy.cuda.Device(second):
        arrays = {key: cupy.asarray(array) for key, array in inputs.items()}
    result = gradkern.run(NAME, **arrays)
    for key, array in result._asdict().items():
        assert array.device.id == second
        assert_close(NAME, key, cupy.asnumpy(array), expected[key])


@pytest.mark.parametrize("moved", ["X", "scale"])
def test_arrays_on_two_gpus_are_refused_together(second: int, moved: str) -> None:
    torch = pytest.importorskip("torch")
    inputs = host_inputs()
    arrays = on_gpu(0, inputs)
    gradkern.run(NAME, **arrays)
    plan = gradkern.prepare(NAME, **arrays)
    mixed = {**arrays, moved: arrays[moved].to(f"cuda:{second}")}
    for call in (lambda: gradkern.run(NAME, **mixed), lambda: plan(**mixed)):
        with pytest.raises(gradkern.DeviceError, match=f"input {moved} on cuda:{second}"):
            call()
    out = {"X_grad": torch.empty_like(arrays["X"], device=f"cuda:{second}")}
    with pytest.raises(gradkern.DeviceError, match=f"out X_grad is on cuda:{second}, but input Y_grad on cuda:0"):
        run_any(NAME, **arrays, out=out)
    with pytest.raises(gradkern.ArgumentError, match=f"the arrays are on cuda:{second}; .* prepared for cuda:0"):
        plan(**on_gpu(second, inputs))


def test_a_call_without_a_plan_is_refused_in_a_capture_which_goes_on(empty_plan_cache: None) -> None:
    torch = pytest.importorskip("torch")
    there, _, _ = by_torch()
    warm, cold = ({key: there(each) for key, each in host_inputs(rows, 1024).items()} for rows in (300, 301))
    gradkern.run(NAME, **warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(gradkern.ProviderError, match=f"{NAME}: the first call of a kind cannot be captured"):
            gradkern.run(NAME, **cold)
        result = gradkern.run(NAME, **warm)
    result.scale_grad.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert bool(result.scale_grad.any())
