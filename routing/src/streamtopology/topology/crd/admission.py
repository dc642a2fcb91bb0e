"""A ValidatingAdmissionPolicy for what the schema's rules cannot see: fields that may be of several kinds.

An input is a name or a mapping, a key a column or a list, an option a text, number or boolean, an amount of CPU a text or
any number (amounts.py): an API server's schema keeps such values but hides them from its rules. A policy sees them.

It refuses what people get wrong: a misspelt input, a missing key, a missing option, an amount without its unit. The rest
(cycles, aliases, Spark's DDL, a user's class, a grouping of another package) stays with the operator, which refuses it when
it reads the object. Errors of the policy itself are passed over (`failurePolicy: Ignore`): it is a quicker answer, not the
last word.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.topology.crd import amounts
from streamtopology.topology.crd.fields import Schema
from streamtopology.topology.crd.rules import sentence, texts
from streamtopology.topology.groupings import BUILT_IN, KEYLESS_POLICY
from streamtopology.topology.traits import BUILTINS
from streamtopology.topology.values import API_VERSION, DESCRIPTOR_FILE_FORMATS, ICEBERG_NEEDS, SINK_NEEDS, WITH_SCHEMA

NAME = "streamtopology-manifests"

# Of an input `i`, an operator `o`, a source or sink `s`.
_IS_INPUT = (
    "(type(i) == string || (type(i) == map && 'from' in i && type(i['from']) == string "
    "&& (!('as' in i) || type(i['as']) == string)))"
)
_ORIGIN = "(type(i) == string ? i : i['from'])"
_HAS_KEY = "('grouping' in o && 'key' in o.grouping && size(o.grouping.key) > 0)"
_POLICY = f"('grouping' in o ? o.grouping.policy : '{KEYLESS_POLICY}')"
_FORMAT = "s.format.lowerAscii()"
_OPTIONS = "('options' in s ? s.options : {})"


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
        "validations": [*_edges(), *_groupings(), *_sources(), *_sinks(), *amounts.validations()],
    }
    binding: Schema = {"policyName": NAME, "validationActions": ["Deny"]}
    return [
        head | {"kind": "ValidatingAdmissionPolicy", "spec": policy},
        head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def _variables() -> dict[str, str]:
    """Variables shared by several checks; each is evaluated when it is first needed."""
    return {
        "sources": "object.spec.sources",
        "operators": "object.spec.operators",
        "sinks": "'sinks' in object.spec ? object.spec.sinks : []",
        "names": "object.spec.sources.map(s, s.name) + object.spec.operators.map(o, o.name)",
        "optionsOf": "{" + ", ".join(f"'{name}': {texts(spec.options)}" for name, spec in BUILT_IN.items()) + "}",
    } | amounts.variables()


def _check(items: str, item: str, wrong: str, words: str, *values: str) -> Schema:
    """Refuses when something is wrong with an item; `values` are of the first such item, under the item's letter."""
    message = sentence(f"spec.{items}, %s: {words}", f"{item}.name", *values)
    return {
        "expression": f"!variables.{items}.exists({item}, {wrong})",
        "messageExpression": f"variables.{items}.filter({item}, {wrong}).map({item}, {message})[0]",
        "message": f"spec.{items}: {words.replace('%s', '...').replace('%d', '...')}",
    }


def _edges() -> Iterable[Schema]:
    unknown = f"!({_ORIGIN} in variables.names)"
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
    ]


def _groupings() -> Iterable[Schema]:
    keyed = texts(name for name, spec in BUILT_IN.items() if spec.needs_key)
    splitting = texts(name for name, spec in BUILT_IN.items() if spec.splits_keys)
    stateful = texts(name for name, traits in BUILTINS.items() if traits.stateful)
    combinable = texts(name for name, traits in BUILTINS.items() if traits.combinable)
    windowed = texts(
        name for name, traits in BUILTINS.items() if traits.windowed and not traits.windowed_with and not traits.by_clock
    )
    whole = ", ".join(name for name, spec in BUILT_IN.items() if not spec.splits_keys)
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
            f"{split} && !(o.run in {combinable})",
            f"{before}whose state cannot be combined; allowed: {whole}",
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
    without_topics = f"{_FORMAT} == 'kafka' && !('subscribePattern' in {_OPTIONS})"
    return [
        _needs("sources", f"{_FORMAT} in {files}", "path", "is missing, expected the folder or pattern of %s files"),
        *(_needs("sources", f"{_FORMAT} == 'iceberg'", name, "is missing, a table of %s needs it") for name in ICEBERG_NEEDS),
        _needs("sources", f"{_FORMAT} == 'kafka'", "kafka.bootstrap.servers", "is missing, a %s source needs it"),
        _needs("sources", without_topics, "subscribe", "is missing, a %s source needs it or subscribePattern"),
        _check(
            "sources",
            "s",
            f"{_FORMAT} in {texts(WITH_SCHEMA)} && !('schema' in s)",
            "schema is missing, expected Spark DDL such as `tailnum STRING, arr_delay DOUBLE`",
        ),
    ]


def _sinks() -> Iterable[Schema]:
    writes = "s.format in ['parquet', 'json', 'csv', 'delta']"
    path = "string(s.options.path)"
    other = "t.name != s.name && t.format in ['parquet', 'json', 'csv', 'delta'] && 'options' in t && 'path' in t.options"
    shared = f"variables.sinks.exists(t, {other} && t.options.path == s.options.path)"
    twice = f"{writes} && 'path' in {_OPTIONS} && {shared}"
    needs: dict[str, list[str]] = {}
    for format_, options in SINK_NEEDS.items():
        for option in options:
            needs.setdefault(option, []).append(format_)
    return [
        *(
            _needs("sinks", f"s.format in {formats}", option, "is missing, format %s needs it")
            for option, formats in needs.items()
        ),
        _check("sinks", "s", twice, "found '%s' again, another sink writes there already", path),
    ]


def _needs(items: str, where: str, option: str, why: str) -> Schema:
    return _check(items, "s", f"{where} && !('{option}' in {_OPTIONS})", f"options.{option} {why}", "s.format")
