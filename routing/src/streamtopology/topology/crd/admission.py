"""A ValidatingAdmissionPolicy for what the schema's rules cannot see: fields that may be of several kinds.

An input is a name or a mapping, a key a column or a list, an option a text, number or boolean, an amount of CPU a text or
any number (amounts.py): an API server's schema keeps such values but hides them from its rules. A policy sees them. What
only Spark's DDL, a user's class or a grouping of another package can show stays with the operator, which refuses it when it
reads the object. Errors of
the policy itself are passed over (`failurePolicy: Ignore`): it is a quicker answer, not the last word.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.topology.crd import amounts
from streamtopology.topology.crd.fields import Schema
from streamtopology.topology.crd.rules import sentence, texts
from streamtopology.topology.groupings import BUILT_IN, KEYLESS_POLICY
from streamtopology.topology.traits import BUILTINS
from streamtopology.topology.values import API_VERSION, DESCRIPTOR_FILE_FORMATS

NAME = "streamtopology-manifests"

# Layers of operators that the search for cycles takes off; behind a longer chain it is the operator that finds them.
_PEELED = 8

# Of an input `i`, an operator `o`, a source or sink `s`.
_IS_INPUT = (
    "(type(i) == string || (type(i) == map && 'from' in i && type(i['from']) == string "
    "&& (!('as' in i) || type(i['as']) == string)))"
)
_ORIGIN = "(type(i) == string ? i : i['from'])"
_ALIASES = "o.inputs.map(i, type(i) == string ? i : ('as' in i ? i['as'] : i['from']))"
_REPEATED = f"{_ALIASES}.filter(a, {_ALIASES}.filter(b, a == b).size() > 1)"
_HAS_KEY = "('grouping' in o && 'key' in o.grouping && size(o.grouping.key) > 0)"
_KEYS = "(!('grouping' in o && 'key' in o.grouping) ? 0 : type(o.grouping.key) == string ? 1 : size(o.grouping.key))"
_KEYS_OF_INPUT = "(type(i.key) == string ? 1 : size(i.key))"
_STRANGE_KEY = "!(type({0}) == string || (type({0}) == list && {0}.all(c, type(c) == string)))"
_STRANGE_KEYS = (
    f"('grouping' in o && 'key' in o.grouping && {_STRANGE_KEY.format('o.grouping.key')}) || "
    f"o.inputs.exists(i, type(i) == map && 'key' in i && {_STRANGE_KEY.format('i.key')})"
)
_OTHER_KEYS = f"type(i) == map && 'key' in i && size(i.key) > 0 && {_KEYS_OF_INPUT} != {_KEYS}"
_POLICY = f"('grouping' in o ? o.grouping.policy : '{KEYLESS_POLICY}')"
_FORMAT = "s.format.lowerAscii()"
_OPTIONS = "('options' in s ? s.options : {})"
_SCALAR = "(type(v) == string || type(v) == int || type(v) == double || type(v) == bool)"
_EXPRESSION = (
    'e.matches(\'(?is)^\\\\s*([*].*|([a-z_][a-z0-9_]*|"([^"]|"")+")|.*\\\\sas\\\\s+([a-z_][a-z0-9_]*|"([^"]|"")+"))\\\\s*$\')'
)
_SELECT = "(!('select' in s) ? [] : type(s.select) == string ? [s.select] : s.select)"


def admission_policy() -> list[Schema]:
    """The policy and its binding, of plain dicts, lists and scalars, ready for YAML or JSON."""
    group, version = API_VERSION.split("/")
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["streamtopologies"],
    }
    head: Schema = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "streamtopology"}},
    }
    policy: Schema = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [rule]},
        # Finalizers, labels and annotations change on objects that came before the policy, too.
        "matchConditions": [{"name": "spec-changed", "expression": "oldObject == null || object.spec != oldObject.spec"}],
        "variables": [{"name": name, "expression": expression} for name, expression in _variables().items()],
        "validations": [*_edges(), *_groupings(), *_sources(), *_sinks(), *_late(), *amounts.validations()],
    }
    binding: Schema = {"policyName": NAME, "validationActions": ["Deny"]}
    return [
        head | {"kind": "ValidatingAdmissionPolicy", "spec": policy},
        head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def _variables() -> dict[str, str]:
    """Variables shared by several checks; each is evaluated when it is first needed."""
    variables = {
        "sources": "object.spec.sources",
        "operators": "object.spec.operators",
        "sinks": "'sinks' in object.spec ? object.spec.sinks : []",
        "operatorNames": "object.spec.operators.map(o, o.name)",
        "names": "object.spec.sources.map(s, s.name) + object.spec.operators.map(o, o.name)",
        "optionsOf": "{" + ", ".join(f"'{name}': {texts(spec.options)}" for name, spec in BUILT_IN.items()) + "}",
        "peeled0": "variables.operatorNames.filter(n, false)",
    }
    for layer in range(1, _PEELED + 1):
        waits = f"{_ORIGIN} in variables.operatorNames && !({_ORIGIN} in variables.peeled{layer - 1}) && {_ORIGIN} != o.name"
        variables[f"peeled{layer}"] = f"variables.operators.filter(o, !o.inputs.exists(i, {waits})).map(o, o.name)"
    return variables | amounts.variables()


def _check(items: str, item: str, wrong: str, words: str, *values: str) -> Schema:
    """Refuses when something is wrong with an item; `values` are of the first such item, under the item's letter."""
    message = sentence(f"spec.{items}, %s: {words}", f"{item}.name", *values)
    return {
        "expression": f"!variables.{items}.exists({item}, {wrong})",
        "messageExpression": f"variables.{items}.filter({item}, {wrong}).map({item}, {message})[0]",
        "message": f"spec.{items}: {words.replace('%s', '...').replace('%d', '...')}",
    }


def _edges() -> Iterable[Schema]:
    last, before = f"variables.peeled{_PEELED}", f"variables.peeled{_PEELED - 1}"
    unknown = f"!({_ORIGIN} in variables.names)"
    several = {name: traits.min_inputs for name, traits in BUILTINS.items() if traits.min_inputs > 1}
    few = [f"(o.run == '{name}' && size(o.inputs) < {least})" for name, least in several.items()]
    cycle = "spec.operators: the operators form a cycle: all or some of %s"
    left = f"variables.operatorNames.filter(n, !(n in {last})).join(', ')"
    return [
        _check(
            "operators",
            "o",
            f"!o.inputs.all(i, {_IS_INPUT})",
            "expected an input to be the name of a source or operator, or a mapping with from, as, key",
        ),
        _check(
            "operators",
            "o",
            f"o.inputs.exists(i, {unknown})",
            "unknown input: found '%s', allowed: %s",
            f"o.inputs.filter(i, {unknown}).map(i, {_ORIGIN})[0]",
            "variables.names.filter(n, n != o.name).join(', ')",
        ),
        _check(
            "operators",
            "o",
            f"o.inputs.exists(i, {_ORIGIN} == o.name)",
            "operator '%s' reads from itself; rows cannot flow back",
            "o.name",
        ),
        _check(
            "operators",
            "o",
            f"size({_REPEATED}) > 0",
            "found the alias '%s' again; distinguish the inputs by `as`",
            f"{_REPEATED}[0]",
        ),
        _check("operators", "o", _STRANGE_KEYS, "expected a key to be a column or a list of columns"),
        _check(
            "operators",
            "o",
            f"o.inputs.exists(i, {_OTHER_KEYS})",
            "found %d columns, grouping.key has %d: one for each",
            f"o.inputs.filter(i, {_OTHER_KEYS}).map(i, {_KEYS_OF_INPUT})[0]",
            _KEYS,
        ),
        _check("operators", "o", " || ".join(few), "found %d inputs, '%s' takes 2 or more", "size(o.inputs)", "o.run"),
        {
            "expression": f"size({last}) == size(variables.operatorNames) || size({last}) != size({before})",
            "messageExpression": sentence(cycle, left),
            "message": cycle.replace("%s", "..."),
        },
    ]


def _groupings() -> Iterable[Schema]:
    keyed = texts(name for name, spec in BUILT_IN.items() if spec.needs_key)
    splitting = texts(name for name, spec in BUILT_IN.items() if spec.splits_keys)
    stateful = texts(name for name, traits in BUILTINS.items() if traits.stateful)
    combinable = texts(name for name, traits in BUILTINS.items() if traits.combinable)
    windowed = texts(name for name, traits in BUILTINS.items() if traits.windowed)
    whole = ", ".join(name for name, spec in BUILT_IN.items() if not spec.splits_keys)
    tuples = "('with' in o && 'emit' in o['with'] && o['with'].emit == 'tuples')"
    strange = f"o.grouping.options.filter(n, !(n in variables.optionsOf[{_POLICY}]))"
    split = f"o.run in {stateful} && {_POLICY} in {splitting}"
    before = "found '%s', which sends one key to several instances, before '%s', "
    return [
        _check(
            "operators",
            "o",
            f"{_POLICY} in {keyed} && !{_HAS_KEY}",
            "grouping.key is missing, expected columns: the policy '%s' routes by key",
            _POLICY,
        ),
        _check(
            "operators",
            "o",
            f"o.run in {stateful} && !({_POLICY} in {keyed}) && !{_HAS_KEY}",
            "grouping.key is missing, expected columns: '%s' keeps state per key",
            "o.run",
        ),
        _check(
            "operators",
            "o",
            f"{split} && !{tuples} && !(o.run in {combinable})",
            f"{before}whose state cannot be combined; allowed: {whole}",
            _POLICY,
            "o.run",
        ),
        _check(
            "operators",
            "o",
            f"{split} && {tuples}",
            f"{before}with emit: tuples, which cannot wait for partial results; allowed: {whole}",
            _POLICY,
            "o.run",
        ),
        _check(
            "operators",
            "o",
            f"'grouping' in o && 'options' in o.grouping && {_POLICY} in variables.optionsOf && size({strange}) > 0",
            "'%s' is no option of the grouping '%s'",
            f"{strange}[0]",
            _POLICY,
        ),
        _check(
            "operators",
            "o",
            f"o.run in {windowed} && !variables.sources.exists(s, 'watermark' in s)",
            "watermark is missing, expected column and delay: '%s' closes windows by this source's time",
            "o.name",
        ),
    ]


def _sources() -> Iterable[Schema]:
    files = texts(DESCRIPTOR_FILE_FORMATS)
    unnamed = f"{_SELECT}.filter(e, type(e) != string || !{_EXPRESSION})"
    return [
        _needs("sources", f"{_FORMAT} in {files}", "path", "is missing, expected the folder or pattern of %s files"),
        _needs("sources", f"{_FORMAT} == 'kafka'", "kafka.bootstrap.servers", "is missing, a %s source needs it"),
        _needs("sources", f"{_FORMAT} == 'kafka'", "subscribe", "is missing, a %s source needs it"),
        _scalars("sources"),
        _check(
            "sources",
            "s",
            f"{_FORMAT} in ['parquet', 'csv', 'json'] && !('schema' in s)",
            "schema is missing, expected Spark DDL such as `tailnum STRING, arr_delay DOUBLE`",
        ),
        _check(
            "sources",
            "s",
            "'schema' in s && type(s.schema) == string && !s.schema.matches('[^ \\\\n\\\\t]')",
            "the schema is empty, expected Spark DDL such as `tailnum STRING, arr_delay DOUBLE`",
        ),
        _check(
            "sources",
            "s",
            f"size({unnamed}) > 0",
            "found '%s', expected a column or `expression AS name`",
            f"string({unnamed}[0])",
        ),
    ]


def _sinks() -> Iterable[Schema]:
    writes = "(s.format in ['parquet', 'json'])"
    path = "string(s.options.path)"
    other = "t.name != s.name && t.format in ['parquet', 'json'] && 'options' in t && 'path' in t.options"
    shared = f"variables.sinks.exists(t, {other} && t.options.path == s.options.path)"
    twice = f"{writes} && 'path' in {_OPTIONS} && {shared}"
    return [
        _needs("sinks", writes, "path", "is missing, a %s sink needs it"),
        _needs("sinks", "s.format == 'kafka'", "kafka.bootstrap.servers", "is missing, a %s sink needs it"),
        _needs("sinks", "s.format == 'kafka'", "topic", "is missing, a %s sink needs it"),
        _scalars("sinks"),
        _check("sinks", "s", twice, "found '%s' again, another sink writes there already", path),
    ]


def _late() -> Iterable[Schema]:
    """Operators that name a sink for their late rows."""
    without_late_rows = texts(name for name, traits in BUILTINS.items() if not traits.windowed)
    unread = "!variables.sinks.exists(s, s.name == o.late && s.input == o.name)"
    return [
        _check(
            "operators",
            "o",
            f"'late' in o && {unread}",
            "late: found '%s', expected a sink whose input is '%s'",
            "o.late",
            "o.name",
        ),
        _check(
            "operators",
            "o",
            f"'late' in o && o.run in {without_late_rows}",
            "late: found '%s', but '%s' leaves out no row as late",
            "o.late",
            "o.run",
        ),
    ]


def _needs(items: str, where: str, option: str, why: str) -> Schema:
    return _check(items, "s", f"{where} && !('{option}' in {_OPTIONS})", f"options.{option} {why}", "s.format")


def _scalars(items: str) -> Schema:
    wrong = f"!{_OPTIONS}.all(k, [{_OPTIONS}[k]].all(v, {_SCALAR}))"
    return _check(items, "s", wrong, "expected each option to be a text, number, true or false")
