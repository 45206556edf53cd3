"""From a kernel's function to PTX: the passes that kernels need, and device functions that NVVM inlines.

flags    are compared by the options that were set; Numba builds a dictionary of all 26, thousands of times
devices  share one LLVM IR
garbage  is not collected meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from gradkern.cuda.device_code.alike import once_for_alike
from gradkern.cuda.front_end.folding import folded
from gradkern.cuda.front_end.lowering import Lower, TargetContext, TypingContext
from gradkern.system.own_thread import without_collection

_OLDEST = (7, 5)  # newer capabilities have the same IR
_LIBRARIES = 8  # kernels whose IR is kept for another capability: those of one call, at most

compiler: Any = import_module("numba.cuda.compiler")  # Numba has no types
types: Any = import_module("numba.cuda.types")
utils: Any = import_module("numba.cuda.utils")
nvvm: Any = import_module("numba.cuda.cudadrv.nvvm")
typed: Any = import_module("numba.cuda.core.typed_passes")
untyped: Any = import_module("numba.cuda.core.untyped_passes")
analysis: Any = import_module("numba.cuda.core.analysis")
ir_utils: Any = import_module("numba.cuda.core.ir_utils")
ssa: Any = import_module("numba.cuda.core.ssa")
transforms: Any = import_module("numba.cuda.core.transforms")
static_getitem: Any = import_module("numba.cuda.core.rewrites.static_getitem")
CUDACallConv: Any = import_module("numba.cuda.core.callconv").CUDACallConv
CUDADispatcher: Any = import_module("numba.cuda.dispatcher").CUDADispatcher
CUDATarget: Any = import_module("numba.cuda.descriptor").CUDATarget
CUDAFlags: Any = import_module("numba.cuda.flags").CUDAFlags
ConfigStack: Any = import_module("numba.cuda.core.targetconfig").ConfigStack


def _options(flags: Any) -> Any:
    return flags._values


class _Flags(CUDAFlags):
    """Flags that are compared in one compilation have the same options set."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: Any) -> bool:
        return self is other or (type(self) is type(other) and bool(_options(self) == _options(other)))


class _Target(CUDATarget):
    """Numba's target, with the contexts of `lowering`."""

    def __init__(self) -> None:
        CUDATarget.__init__(self, "cuda")
        self._typingctx = TypingContext()
        self._targetctx = TargetContext(self._typingctx)


_target = _Target()
_typing = _target.typing_context


class _Lowering(compiler.CUDANativeLowering):
    lowering_class = Lower


class _Compiler(compiler.CUDACompiler):
    """Bytecode to LLVM IR with the passes that kernels need."""

    def _compile_core(self) -> Any:
        state = self.state
        with ConfigStack().enter(state.flags.copy()):
            compiler.CUDATranslateBytecode().run_pass(state)
            untyped.FixupArgs().run_pass(state)
            function = state.func_ir
            function.generator_info = None
            untyped.rewrite_semantic_constants(function, state.args)
            analysis.dead_branch_prune(function, state.args)
            rewrite = static_getitem.RewriteConstGetitems(state)
            for label, block in function.blocks.items():
                if rewrite.match(function, block, None, None):
                    function.blocks[label] = rewrite.apply()
            function.blocks = transforms.canonicalize_cfg(function.blocks)
            ssa.reconstruct_ssa(function)
            function._definitions = ir_utils.build_definitions(function.blocks)
            typed.NopythonTypeInference().run_pass(state)
            state.func_ir = typed.PreLowerStripPhis()._strip_phi_nodes(function)
            compiler.CreateLibrary().run_pass(state)
            _Lowering().run_pass(state)
            compiler.CUDABackend().run_pass(state)
        return state.cr


class DeviceFunction(CUDADispatcher):
    """A function that kernels call. Numba's own decorator queries the driver for a device before it compiles."""

    targetdescr = _target

    def __init__(self, function: Callable[..., Any]) -> None:
        CUDADispatcher.__init__(self, function, targetoptions={"device": True})

    def compile_device(self, args: tuple[Any, ...], return_type: Any = None) -> Any:
        if args not in self.overloads:
            with self._compiling_counter:
                made = _compiled(self.py_func, args, return_type, inline=True)
                self.overloads[args] = made
                made.target_context.insert_user_function(made.entry_point, made.fndesc, [made.library])
        return self.overloads[args]


def ptx_of(
    kernel: Callable[..., None], arguments: Sequence[Any], capability: tuple[int, int], bounds: tuple[int, int]
) -> str:
    """The PTX of a kernel of arguments of these types, for blocks of bounds[0] threads, bounds[1] of them at a time."""
    with compiler.global_compiler_lock, without_collection():
        [text] = _library(kernel, tuple(arguments), bounds).get_asm_strs(cc=capability)
        return text


def _library_of(kernel: Callable[..., None], arguments: Any, bounds: tuple[int, int]) -> Any:
    """The IR of a kernel and of the functions it calls."""
    _target.target_context.renew()
    made = _compiled(kernel, arguments, types.void, inline=False)
    function = made.library.get_function(made.fndesc.llvm_func_name)
    compiler.kernel_fixup(function, False)
    nvvm.set_launch_bounds(function, bounds)
    return made.library


_library = once_for_alike(_library_of, most=_LIBRARIES)


def _compiled(function: Callable[..., Any], arguments: Any, result: Any, inline: bool) -> Any:
    """What `numba.cuda.compiler.compile_cuda` does, with these flags and passes."""
    flags = _Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model, flags.forceinline, flags.compute_capability = "numpy", inline, _OLDEST
    flags.nvvm_options = {"fastmath": False, "opt": 3}
    target = _target.target_context
    with utils.numba_target_override():
        made = compiler.compile_extra(
            _typing,
            target,
            folded(function),
            arguments,
            result,
            flags,
            {},
            pipeline_class=_Compiler,
            call_conv=CUDACallConv(target),
            abi_info={},
        )
    made.library.finalize()
    return made
