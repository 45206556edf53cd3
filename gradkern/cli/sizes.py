"""A call from the words of a command line: operator, sizes, types; then its plan, without arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gradkern.arrays.kind import dtype_of
from gradkern.contract import registry
from gradkern.contract.examples import complete, example_mistakes
from gradkern.contract.schema import Example, Input, Operator, axis_of, shape_of
from gradkern.dispatch.prepared import Prepared
from gradkern.dispatch.recording import usual
from gradkern.dispatch.run import dry_plan_for, plan_for
from gradkern.errors import (
    ArgumentError,
    DTypeError,
    ProviderError,
    UnknownOperatorError,
    nearest,
    unknown,
    unknown_operator,
)
from gradkern.policy import effective, searching
from gradkern.system import providers
from gradkern.system.providers import unavailable


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call that is described: all but the arrays. types has one for every type variable of the operator.

    strides (in bytes) and alignment are by input, for those that are not as in a new array. inputs are the names of
    those that are given, where these are not the usual ones; scalars, those among them that are numbers on the host.
    """

    name: str
    operator: Operator
    example: Example
    types: Mapping[str, str]
    outputs: Sequence[str] | None = None
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])  # attributes beside the example's
    strides: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    alignment: Mapping[str, int] = field(default_factory=dict[str, int])
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: Sequence[str] | None = None
    scalars: Sequence[str] = ()

    def plan(self, provider: str, **policy: Any) -> Prepared:
        """The plan for such arrays on the provider's first device; `policy` changes the call's own."""
        tensors, more = self._described(provider)
        return plan_for(self.name, tensors, provider=provider, policy={**self.policy, **policy}, **more)

    def searched_plan(self, provider: str) -> Prepared:
        """The plan that `gradkern.tune()` would make, even where the policy defers searches."""
        return self.plan(provider, search=self._searching)

    def dry_plan(self, provider: str) -> None:
        """Ask for the kernels that are missing for `searched_plan`; for use in a dry run."""
        tensors, more = self._described(provider)
        dry_plan_for(self.name, tensors, provider, policy={**self.policy, "search": self._searching}, **more)

    @property
    def size(self) -> str:
        """The axes, the attributes and the types, in a few words."""
        return f"{named(self.example)} {','.join(dict.fromkeys(self.types.values()))}"

    @property
    def _searching(self) -> Any:
        return searching(effective(self.policy)).search

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the call, those among them that say the types of outputs."""
        attributes: dict[str, Any] = {**self.example.attributes, **self.given}
        outputs = self.operator.outputs
        made = {each.type for each in outputs if (each.default if self.outputs is None else each.name in self.outputs)}
        for name, attribute in self.operator.attributes.items():
            if attribute.binds in made:  # no input has this type
                attributes.setdefault(name, self.types[attribute.binds])
        return attributes

    def _described(self, provider: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments that a plan is made from, except the policy."""
        device = providers.PROVIDERS[provider].first_device
        tensors: dict[str, Any] = {}
        for each in _given(self.operator, self.example, self.inputs):
            new = usual(dtype_of(self.types[each.type]), shape_of(each.shape, self.example.axes), device)
            strides = tuple(self.strides.get(each.name, new.strides))
            tensors[each.name] = new._replace(strides=strides, alignment=self.alignment.get(each.name, new.alignment))
            if each.name in self.scalars:
                tensors[each.name] = new.dtype
        return tensors, {"device": device, "outputs": self.outputs, **self.attributes}


def find(name: str) -> Operator:
    """The operator of this name."""
    every = registry.operators()
    if name not in every:
        raise UnknownOperatorError(unknown_operator(name, every))
    return every[name]


def example_of(name: str, operator: Operator, axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> Example:
    """One size of the problem, from JSON; refused where it does not fit the operator's axes."""
    from gradkern.contract import reading  # here: its imports take longer than all the rest

    try:
        example = reading.checked(Example, {"axes": _tuples(axes), "attributes": _tuples(attributes)})
    except reading.EntryError as error:
        where, reason = error.mistakes[0]
        raise ArgumentError(f"{name}: {'.'.join(map(str, where))}: {reason}") from None
    mistakes = [f"{'.'.join(map(str, path))}: {reason}" for path, reason in example_mistakes(operator, example)]
    if mistakes:
        raise ArgumentError(f"{name}: {'; '.join(mistakes)}")
    return complete(operator, example)


def arrays_of(
    name: str, operator: Operator, example: Example, types: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Inputs, strides, alignment and policy of a call, from JSON; refused where they fit neither the operator nor its
    axes and types.
    """
    inputs = given.get("inputs")
    if inputs is not None:
        _check_inputs(name, operator, example, inputs)
    tensors = {each.name: each for each in _given(operator, example, inputs)}
    found: dict[str, Any] = {key: given.get(key) or {} for key in ("strides", "alignment", "policy")}
    for key, values in found.items():
        if not isinstance(values, Mapping):
            raise ArgumentError(f"{name}: {key} is {values!r}; expected an object")
    for key in ("strides", "alignment"):
        for each in found[key].keys() - tensors.keys():
            raise ArgumentError(f"{name}: {key} of {each!r}{nearest(each, tensors)}; inputs are {', '.join(tensors)}")
    for each, value in found["alignment"].items():
        if type(value) is not int or value not in (1, 2, 4, 8, 16):
            raise ArgumentError(f"{name}: alignment of {each} is {value!r}; expected 1, 2, 4, 8 or 16")
    for each, steps in found["strides"].items():
        rank, dtype = len(shape_of(tensors[each].shape, example.axes)), dtype_of(types[tensors[each].type])
        _check_strides(f"{name}: strides of {each}", steps, rank, dtype, found["alignment"].get(each, dtype.itemsize))
    effective(found["policy"])
    scalars: Any = given.get("scalars") or []
    numbers = [each.name for each in operator.inputs if each.is_scalar]
    if not (isinstance(scalars, list) and all(each in numbers for each in cast(list[Any], scalars))):
        raise ArgumentError(f"{name}: scalars is {scalars!r}; expected a list of {', '.join(numbers) or 'none'}")
    return {**found, "inputs": inputs, "scalars": scalars}


def _check_strides(what: str, steps: Any, rank: int, dtype: Any, alignment: int) -> None:
    """Raise ArgumentError unless an array of this type, aligned so, can have these strides."""
    unit = min(dtype.itemsize, alignment)
    expected = f"expected {rank} numbers of bytes, multiples of {unit} for {dtype}"
    if not (type(steps) is list and [type(step) for step in cast(list[Any], steps)] == [int] * rank):
        raise ArgumentError(f"{what} are {steps!r}; {expected}")
    for step in cast(list[int], steps):
        if step % unit or abs(step) >= 2**63:
            raise ArgumentError(f"{what} are {steps!r}, with {step}; {expected}")


def _given(operator: Operator, example: Example, inputs: Sequence[str] | None) -> tuple[Input, ...]:
    """The inputs of these names, in the operator's order, or the usual ones."""
    if inputs is None:
        return operator.inputs_of(example.axes, example.attributes)
    return tuple(each for each in operator.chosen(example.attributes).inputs if each.name in inputs)


def _check_inputs(name: str, operator: Operator, example: Example, inputs: Any) -> None:
    """Raises ArgumentError unless these are names of inputs of known sizes, with all that are not optional."""
    known = [each for each in operator.inputs if all(axis_of(token) in example.axes for token in each.shape)]
    names = [each.name for each in known]
    if not (isinstance(inputs, list) and all(isinstance(each, str) for each in cast(list[Any], inputs))):
        raise ArgumentError(f"{name}: inputs is {inputs!r}; expected a list of names")
    for each in cast(list[str], inputs):
        if each not in names:
            raise ArgumentError(f"{name}: inputs has {each!r}{nearest(each, names)}; inputs are {', '.join(names)}")
    missing = [each.name for each in known if not each.optional and each.name not in inputs]
    if missing:
        raise ArgumentError(f"{name}: inputs lacks {missing[0]}, which is not optional")


def types_of(name: str, operator: Operator, wanted: Any) -> Mapping[str, str]:
    """The first registered combination with data of a type ("bfloat16"), or with the types of these variables."""
    if not isinstance(wanted, str | Mapping):
        raise ArgumentError(f"{name}: types is {wanted!r}; expected a type, or types by variable")
    wanted = cast(str | Mapping[str, str], wanted)
    for variable, given in by_variable(operator, wanted).items():
        if variable not in operator.types:
            raise DTypeError(f"{name}: {unknown('type variable', variable, operator.types)}")
        known = [row[variable] for row in operator.combinations]
        if given not in known:
            raise DTypeError(f"{name}: {unknown(f'type of {variable}', given, known)}")
    found = combinations(operator, wanted)
    if not found:
        text = wanted if isinstance(wanted, str) else ",".join(f"{key}={value}" for key, value in wanted.items())
        rows = "; ".join(", ".join(f"{key}={value}" for key, value in row.items()) for row in operator.combinations)
        raise DTypeError(f"{name}: no registered combination has the types {text}; registered are {rows}")
    return found[0]


def combinations(operator: Operator, wanted: str | Mapping[str, str]) -> list[Mapping[str, str]]:
    """Every registered combination with data of a type ("bfloat16"), or with the types of these variables."""
    wanted = by_variable(operator, wanted)
    return [row for row in operator.combinations if all(row.get(key) == value for key, value in wanted.items())]


def by_variable(operator: Operator, wanted: str | Mapping[str, str]) -> Mapping[str, str]:
    """Types by variable; one alone is that of the data."""
    if not isinstance(wanted, str):
        return wanted
    if "=" not in wanted:
        return {operator.data.type: wanted}
    return {key: value for key, _, value in (each.strip().partition("=") for each in wanted.split(","))}


def usable(name: str, operator: Operator, provider: str | None = None) -> str:
    """This provider, or the best one, if it computes the operator and can run here."""
    if provider is not None and provider not in operator.providers:
        registered = ", ".join(operator.providers)
        hint = nearest(provider, operator.providers)
        raise ProviderError(f"{name}: no provider {provider!r}{hint}; registered are {registered}")
    reasons = {each: unavailable(each) for each in ([provider] if provider else operator.providers)}
    for each, reason in reasons.items():
        if reason is None:
            return each
    raise ProviderError(f"{name}: {'; '.join(f'{each} cannot run here: {reason}' for each, reason in reasons.items())}")


def named(example: Example) -> str:
    """A short name for a size: its axes and its attributes."""
    return " ".join(
        f"{name}={_short(value)}" for part in (example.axes, example.attributes) for name, value in part.items()
    )


def _short(value: Any) -> str:
    return "x".join(map(str, cast(tuple[Any, ...], value))) or "()" if isinstance(value, tuple) else str(value)


def _tuples(values: Any) -> Any:
    """JSON's lists as the contract has them."""
    if not isinstance(values, Mapping):
        return values
    pairs = cast(Mapping[str, Any], values).items()
    return {key: tuple(cast(list[Any], value)) if isinstance(value, list) else value for key, value in pairs}


_KEYS = ("op", "axes", "types", "attributes", "inputs", "outputs", "scalars", "strides", "alignment", "policy")


def wanted_of(data: Any) -> Wanted:
    """A call from JSON, as `gradkern.recorded()` returns it. Raises a GradkernError for any other value."""
    if not isinstance(data, dict):
        raise ArgumentError("expected an object with op, axes and types")
    data = cast(dict[str, Any], data)
    for key in data.keys() - set(_KEYS):
        raise ArgumentError(unknown("key", key, _KEYS))
    missing = [key for key in ("op", "axes") if key not in data]
    if missing:
        raise ArgumentError(f"{missing[0]!r} is missing")
    name = data["op"]
    if not isinstance(name, str):
        raise ArgumentError(f"op is {name!r}; expected a name")
    operator = find(name)
    example = example_of(name, operator, data["axes"], data.get("attributes", {}))
    types = types_of(name, operator, data.get("types", "float32"))
    arrays = arrays_of(name, operator, example, types, data)
    return Wanted(name, operator, example, types, data.get("outputs"), **arrays)
