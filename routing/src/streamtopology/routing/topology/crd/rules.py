"""What `parse` refuses, in CEL, with its sentences: as far as the API server lets a rule see the field.

A rule sees nothing of a field that may be of several kinds (an input that is a name or a mapping, a key that is a column
or a list): what is said of those is in the admission policy, and in what the operator itself refuses.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.routing.topology.crd.fields import Schema
from streamtopology.routing.topology.limits import LONGEST_STATEFUL_SET_NAME, LONGEST_TOPOLOGY_NAME
from streamtopology.routing.topology.parsing import USER_CLASS_PATTERN
from streamtopology.routing.topology.reading import NAME_EXPECTED, NAME_PATTERN

FOUND = '(type(self) == string ? "\'" + string(self) + "\'" : string(self))'
"""The value itself as sentences show it: a text in quotes."""

CPU = "a positive number of cores such as 450m, 0.45 or 2"
MEMORY = "an amount of memory such as 512Mi, 1Gi or 2G"
DURATION = "a duration such as 10us, 250ms, 10s, 5m, 1h or 0"

_NEGATIVE = "string(self).startsWith('-')"
_MEMORY_TEXT = r"string(self).matches('^[0-9]+([.][0-9]+)?([kMGT]|[KMGT]i)?$')"


def rule(holds: str, message: str, path: str | None = None) -> Schema:
    """A rule with a plain sentence. `path`: of the field below, where the sentence belongs."""
    return {"rule": holds, "message": message, **({"fieldPath": path} if path else {})}


def telling(holds: str, message: str, fallback: str, path: str | None = None) -> Schema:
    """A rule whose sentence is itself an expression. `fallback`: the sentence should it fail."""
    return {"rule": holds, "messageExpression": message, "message": fallback, **({"fieldPath": path} if path else {})}


def _quantity_rules(expected: str, checks: list[tuple[str, str]]) -> list[Schema]:
    """Each check holds only where all before it do; so one mistake is one sentence."""
    rules: list[Schema] = []
    before: list[str] = []
    for holds, why in checks:
        guarded = f"!({' && '.join(before)}) || {holds}" if before else holds
        tail = f": {why}" if why else ""
        rules.append(telling(guarded, f"'found ' + {FOUND} + ', expected {expected}{tail}'", f"expected {expected}{tail}"))
        before.append(f"({holds})")
    return rules


def cpu_rules() -> list[Schema]:
    return _quantity_rules(
        CPU,
        [
            (f"!{_NEGATIVE}", "it is negative"),
            ("string(self).matches('^[0-9]+([.][0-9]+)?m?$')", ""),
            ("string(self).matches('[1-9]')", "an executor without CPU does no work"),
            ("string(self).matches('^[0-9]+([.]0+)?m$|^[0-9]+([.][0-9]{1,3}0*)?$')", "nothing is finer than 1m"),
            ("quantity(string(self)).compareTo(quantity('1024')) <= 0", "at most 1024 cores"),
        ],
    )


def memory_rules() -> list[Schema]:
    return _quantity_rules(
        MEMORY,
        [
            (f"!{_NEGATIVE}", "it is negative"),
            ("string(self).matches('^[0-9]+([.][0-9]+)?[A-Za-z]*$')", ""),
            (_MEMORY_TEXT, "the units are k, M, G, T, Ki, Mi, Gi, Ti"),
            ("quantity(string(self)).isInteger()", "this is not a whole number of bytes"),
            ("quantity(string(self)).compareTo(quantity('1024Ti')) <= 0", "at most 1024Ti"),
        ],
    )


def least_memory(least: str, why: str) -> Schema:
    """At least so much memory, for a field that has the rules above, too."""
    readable = f"{_MEMORY_TEXT} && quantity(string(self)).isInteger()"
    holds = f"!({readable}) || quantity(string(self)).compareTo(quantity('{least}')) >= 0"
    found = "'found ' + string(quantity(string(self)).asInteger()) + ' bytes, "
    return telling(holds, f"{found}{why}'", why)


def duration_rules(above_zero: bool = False) -> list[Schema]:
    rules = _quantity_rules(
        DURATION,
        [
            (f"!{_NEGATIVE}", "it is negative"),
            ("string(self).matches('^[0-9]+([.][0-9]+)?[A-Za-zµ]*$')", ""),
            ("string(self).matches('[a-zA-Zµ]$|^0+([.]0+)?$')", "a number alone has no unit"),
            ("string(self).matches('[0-9](us|µs|ms|s|m|h)?$')", "the units are us, ms, s, m, h"),
            ("string(self).matches('^[0-9]+([.][0-9]{1,3})?(us|µs)$|^[0-9]+([.][0-9]{1,6})?(ms|s|m|h)?$')",
             "write at most 3 decimals of a us, 6 of anything else"),
            ("double(string(self).replace('us', '').replace('µs', '').replace('ms', '').replace('s', '').replace('m', '')"
             ".replace('h', '')) * (string(self).endsWith('us') || string(self).endsWith('µs') ? 0.000001 "
             ": string(self).endsWith('ms') ? 0.001 : string(self).endsWith('m') ? 60.0 : string(self).endsWith('h') ? 3600.0 "
             ": 1.0) <= 31622400.0", "at most a year, 8784h"),
        ],
    )  # fmt: skip
    if above_zero:
        found = f"'found ' + {FOUND} + ', expected a duration above 0 such as 10s'"
        rules.append(telling("!string(self).matches('^[0.]+[a-zµ]*$')", found, "expected a duration above 0 such as 10s"))
    return rules


def name_rules() -> list[Schema]:
    quoted = NAME_EXPECTED.replace("'", "\\'")
    return [telling(f"self.matches('^{NAME_PATTERN}$')", f"'found \\'' + self + '\\', expected {quoted}'", NAME_EXPECTED)]


def topology_name_rules() -> list[Schema]:
    """Rules at the root, the only place that sees the object's name."""
    expected = (
        f"expected at most {LONGEST_TOPOLOGY_NAME} characters, the first of them a letter: "
        "names of Services and Jobs begin with it"
    )
    holds = f"size(self.metadata.name) <= {LONGEST_TOPOLOGY_NAME} && self.metadata.name.matches('^[a-z][-a-z0-9]*$')"
    fits = f"size(self.metadata.name) + 1 + size(e.name) <= {LONGEST_STATEFUL_SET_NAME}"
    too_long = (
        f"'found \\'' + self.metadata.name + '-' + self.spec.executors.filter(e, !({fits}))[0].name + '\\' for its pods, "
        f"expected at most {LONGEST_STATEFUL_SET_NAME} characters: shorten a name'"
    )
    return [
        telling(holds, f"'metadata.name: found \\'' + self.metadata.name + '\\', {expected}'", f"metadata.name: {expected}"),
        telling(f"self.spec.executors.all(e, {fits})", too_long, "names of topology and class are too long", ".spec.executors"),
    ]


def _first(items: str, broken: str) -> str:
    return f"{items}.filter(x, {broken})[0]"


def spec_rules() -> list[Schema]:
    operator_names = "self.operators.map(o, o.name).join(', ')"
    class_names = "self.executors.map(e, e.name).join(', ')"
    shared = "self.sources.exists(s, s.name == x.name)"
    unknown = "!self.operators.exists(o, o.name == x.input)"
    scaled = "(has(self.autoscale) && e.name == self.autoscale.class)"
    others = f"self.executors.exists(e, !{scaled} && (!has(e.replicas) || e.replicas > 0))"
    set_twice = f"self.executors.filter(e, {scaled} && has(e.replicas))"
    return [
        telling(
            f"!self.operators.exists(x, {shared})",
            f"'found \\'' + {_first('self.operators', shared)}.name + "
            "'\\' again, a source has it; sources and operators need different names'",
            "sources and operators need different names", ".operators",
        ),
        telling(
            f"!has(self.sinks) || !self.sinks.exists(x, {unknown})",
            f"'unknown operator: found \\'' + {_first('self.sinks', unknown)}.input + '\\', allowed: ' + {operator_names}",
            "unknown operator", ".sinks",
        ),
        telling(
            f"!has(self.autoscale) || self.executors.exists(e, {scaled})",
            f"'unknown executor class: found \\'' + self.autoscale.class + '\\', allowed: ' + {class_names}",
            "unknown executor class", ".autoscale.class",
        ),
        telling(
            f"{set_twice}.size() == 0",
            f"'found ' + string({set_twice}[0].replicas) + ' and spec.autoscale for the class \\'' + self.autoscale.class + "
            "'\\', allowed is one of them: leave replicas out, spec.autoscale.replicas has them'",
            "the class that autoscale names sets no replicas", ".executors",
        ),
        rule(
            f"has(self.autoscale) || {others}",
            "all classes together have 0 replicas, a topology needs at least one executor", ".executors",
        ),
        rule(
            f"!has(self.autoscale) || self.autoscale.minReplicas > 0 || {others}",
            "found 0 and no executor of another class, a topology needs at least one executor", ".autoscale.minReplicas",
        ),
    ]  # fmt: skip


def autoscale_rules() -> list[Schema]:
    return [
        rule(
            "self.by != 'Operator' || has(self.maxReplicas)",
            "is missing, expected the most executors that the operator may ask for, since by is Operator",
            ".maxReplicas",
        ),
        telling(
            "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "'found ' + string(self.minReplicas) + ', expected at most maxReplicas, ' + string(self.maxReplicas)",
            "expected at most maxReplicas",
            ".minReplicas",
        ),
    ]


def run_rules(builtins: Iterable[str]) -> list[Schema]:
    names = list(builtins)
    known = ", ".join(f"'{name}'" for name in names)
    expected = f"allowed: {', '.join(names)} (or module:Class, or path/to/file.py:Class)"
    return [
        telling(
            f"self in [{known}] || self.matches('^({USER_CLASS_PATTERN})$')",
            f"'found \\'' + self + '\\', {expected}'",
            expected,
        )
    ]


TRIGGER_RULE = rule(
    "!self.availableNow || string(self.interval).matches('^[0.]+[a-zµ]*$')",
    "found interval and availableNow together, allowed is one of them: availableNow does not wait",
)

CHECKPOINT_RULE = telling(
    "!self.matches('^[A-Za-z][A-Za-z0-9+.-]*:') || self.matches('^(file|s3):')",
    "'found the scheme \\'' + self.split(':')[0] + '\\' in \\'' + self + "
    "'\\', allowed: a path without scheme, file://, s3://'",
    "allowed: a path without scheme, file://, s3://",
)  # fmt: skip
