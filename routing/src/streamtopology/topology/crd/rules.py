"""Refusals of `parse` in CEL, with its sentences: as far as the API server lets a rule see the field.

A rule sees nothing of a field that may be of several kinds (an input that is a name or a mapping, a key that is a column
or a list): the admission policy and the operator itself refuse those.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.contract import environment
from streamtopology.topology.checks import NO_CHECKPOINT
from streamtopology.topology.crd.fields import Schema
from streamtopology.topology.cron import CRON_EXPECTED, CRON_PATTERN
from streamtopology.topology.limits import LONGEST_STATEFUL_SET_NAME, LONGEST_TOPOLOGY_NAME
from streamtopology.topology.parsing import BUCKET_PATTERN, ORIGIN_EXPECTED, PLACE_EXPECTED, USER_CLASS_PATTERN
from streamtopology.topology.pods import (
    LABEL_NAME_EXPECTED,
    LABEL_NAME_PATTERN,
    LABEL_VALUE_EXPECTED,
    LABEL_VALUE_PATTERN,
    OWN_CONTAINER,
    OWN_PATH,
    OWN_VOLUME,
    REPEATED_PATH,
    RESERVED_LABEL_PREFIXES,
    PodKind,
)
from streamtopology.topology.quantities import DURATION_EXPECTED, NEGATIVE
from streamtopology.topology.reading import NAME_EXPECTED, NAME_PATTERN, TOPOLOGY_NAME_EXPECTED
from streamtopology.topology.values import EMPTY

# The value itself as sentences show it: a text in quotes.
FOUND = '(type(self) == string ? "\'" + string(self) + "\'" : string(self))'

_DURATION_CHECKS = (
    ("!string(self).startsWith('-')", NEGATIVE),
    ("string(self).matches('^[0-9]+([.][0-9]+)?[A-Za-zµ]*$')", ""),
    ("string(self).matches('[a-zA-Zµ]$|^0+([.]0+)?$')", "a number alone has no unit"),
    ("string(self).matches('[0-9](us|µs|ms|s|m|h)?$')", "the units are us, ms, s, m, h"),
    (
        "string(self).matches('^[0-9]+([.][0-9]{1,3}0*)?(us|µs)$|^[0-9]+([.][0-9]{1,6}0*)?ms$|^[0-9]+([.][0-9]{1,9}0*)?[smh]?$')",
        "nothing is finer than 0.001us",
    ),
    (
        "double(string(self).replace('us', '').replace('µs', '').replace('ms', '').replace('s', '').replace('m', '')"
        ".replace('h', '')) * (string(self).endsWith('us') || string(self).endsWith('µs') ? 0.000001 "
        ": string(self).endsWith('ms') ? 0.001 : string(self).endsWith('m') ? 60.0 "
        ": string(self).endsWith('h') ? 3600.0 : 1.0) <= 31622400.0",
        "at most a year, 8784h",
    ),
)

_SEVERAL = "has(self.autoscale.classes)"
_SCALED = (
    "(has(self.autoscale) && (has(self.autoscale.class) && x.name == self.autoscale.class "
    f"|| {_SEVERAL} && self.autoscale.classes.exists(c, c.name == x.name)))"
)


def rule(holds: str, message: str, path: str | None = None) -> Schema:
    """A rule with a plain sentence. `path`: of the field below, where the sentence belongs."""
    return {"rule": holds, "message": message, **({"fieldPath": path} if path else {})}


def telling(holds: str, message: str, fallback: str, path: str | None = None) -> Schema:
    """A rule whose sentence is itself an expression. `fallback`: the sentence should it fail."""
    return {"rule": holds, "messageExpression": message, "message": fallback, **({"fieldPath": path} if path else {})}


def duration_rules(above_zero: bool = False) -> list[Schema]:
    """Each rule holds where one before it does not, so that one mistake is one sentence."""
    rules: list[Schema] = []
    before: list[str] = []
    for holds, why in _DURATION_CHECKS:
        guarded = f"!({' && '.join(before)}) || {holds}" if before else holds
        expected = f"expected {DURATION_EXPECTED}{why and ': '}{why}"
        rules.append(telling(guarded, sentence(f"found %s, {expected}", FOUND), expected))
        before.append(f"({holds})")
    if above_zero:
        expected = "expected a duration above 0 such as 10s"
        rules.append(telling("!string(self).matches('^[0.]+[a-zµ]*$')", sentence(f"found %s, {expected}", FOUND), expected))
    return rules


def name_rules() -> list[Schema]:
    return [
        telling(f"self.matches('^{NAME_PATTERN}$')", sentence(f"found '%s', expected {NAME_EXPECTED}", "self"), NAME_EXPECTED)
    ]


def topology_name_rules() -> list[Schema]:
    """Rules at the root, the only place that sees the object's name."""
    longest, most = LONGEST_TOPOLOGY_NAME, LONGEST_STATEFUL_SET_NAME
    expected = f"expected {TOPOLOGY_NAME_EXPECTED}"
    holds = f"size(self.metadata.name) <= {longest} && self.metadata.name.matches('^[a-z][-a-z0-9]*$')"
    fits = f"size(self.metadata.name) + 1 + size(x.name) <= {most}"
    too_long = f"for its pods, expected at most {most} characters: shorten a name"
    return [
        telling(holds, sentence(f"metadata.name: found '%s', {expected}", "self.metadata.name"), f"metadata.name: {expected}"),
        telling(
            f"!({holds}) || self.spec.executors.all(x, {fits})",
            sentence(f"found '%s-%s' {too_long}", "self.metadata.name", f"{_first('self.spec.executors', f'!({fits})')}.name"),
            f"found a name {too_long}",
            ".spec.executors",
        ),
    ]


def sentence(words: str, *values: str) -> str:
    """An expression that puts values into words. (Its cost is estimated by the words alone; `+` would have no bound.)"""
    quoted = words.replace("'", "\\'")
    return f"'{quoted}'.format([{', '.join(values)}])"


def _first(items: str, condition: str) -> str:
    """The first item `x` for which the condition holds."""
    return f"{items}.filter(x, {condition})[0]"


def spec_rules() -> list[Schema]:
    operator_names = "self.operators.map(o, o.name)"
    shared = "self.sources.exists(s, s.name == x.name)"
    unknown = "!self.operators.exists(o, o.name == x.input)"
    others = f"self.executors.exists(x, !{_SCALED} && (!has(x.replicas) || x.replicas > 0))"
    return [
        telling(
            f"!self.operators.exists(x, {shared})",
            sentence(
                "found '%s' again, a source has it; sources and operators need different names",
                f"{_first('self.operators', shared)}.name",
            ),
            "sources and operators need different names",
            ".operators",
        ),
        telling(
            f"!has(self.sinks) || !self.sinks.exists(x, {unknown})",
            sentence("unknown operator: found '%s', allowed: %s", f"{_first('self.sinks', unknown)}.input", operator_names),
            "unknown operator",
            ".sinks",
        ),
        *_rules_of_scaled_classes(),
        rule("has(self.checkpoint)", NO_CHECKPOINT, ".checkpoint"),
        rule(
            f"has(self.autoscale) || {others}",
            "all classes together have 0 replicas, a topology needs at least one executor",
            ".executors",
        ),
    ]


def _rules_of_scaled_classes() -> list[Schema]:
    """`autoscale` names executor classes that there are, and that set no replicas."""
    class_names = "self.executors.map(e, e.name)"
    unknown_class = "!self.executors.exists(e, e.name == x.name)"
    set_twice = f"{_SCALED} && has(x.replicas)"
    return [
        telling(
            f"!has(self.autoscale) || !has(self.autoscale.class) || self.executors.exists(x, {_SCALED})",
            sentence("unknown executor class: found '%s', allowed: %s", "self.autoscale.class", class_names),
            "unknown executor class",
            ".autoscale.class",
        ),
        telling(
            f"!has(self.autoscale) || !{_SEVERAL} || !self.autoscale.classes.exists(x, {unknown_class})",
            sentence(
                "unknown executor class: found '%s', allowed: %s",
                f"{_first('self.autoscale.classes', unknown_class)}.name",
                class_names,
            ),
            "unknown executor class",
            ".autoscale.classes",
        ),
        telling(
            f"!self.executors.exists(x, {set_twice})",
            sentence(
                "found %d and spec.autoscale for the class '%s', allowed is one of them: leave replicas out, "
                "spec.autoscale.%s has them",
                f"{_first('self.executors', set_twice)}.replicas",
                f"{_first('self.executors', set_twice)}.name",
                f"{_SEVERAL} ? 'classes' : 'replicas'",
            ),
            "the class that autoscale names sets no replicas",
            ".executors",
        ),
    ]


def run_rules(builtins: Iterable[str]) -> list[Schema]:
    names = list(builtins)
    expected = f"allowed: {', '.join(names)} (or module:Class, or path/to/file.py:Class)"
    return [
        telling(
            f"self in {texts(names)} || self.matches('^({USER_CLASS_PATTERN})$')",
            sentence(f"found '%s', {expected}", "self"),
            expected,
        )
    ]


def pod_rules(kind: PodKind) -> list[Schema]:
    """A mount's volume must be there, and nothing takes the place of what the operator adds."""
    unknown = "!(has(self.volumes) && self.volumes.exists(v, v.name == x.name))"
    repeated = "!self.volumeMounts.exists_one(y, y.mountPath == x.mountPath)"
    ours = f"x.mountPath.matches('^({'|'.join(kind.mounts.values())})/*$')"
    return [
        _none_of("volumeMounts", unknown, "unknown volume: found '%s'", "name"),
        _none_of("volumeMounts", repeated, f"found '%s' again; {REPEATED_PATH}", "mountPath"),
        _none_of("volumeMounts", ours, f"found '%s', {OWN_PATH}", "mountPath"),
        _none_of("volumes", f"x.name in {texts(kind.mounts)}", f"found '%s', {OWN_VOLUME}", "name"),
        _none_of("initContainers", f"x.name in {texts(kind.containers)}", f"found '%s', {OWN_CONTAINER}", "name"),
    ]


def _none_of(items: str, wrong: str, words: str, key: str) -> Schema:
    """No item `x` of this list may be wrong; the sentence has the `key` of the first that is."""
    found = sentence(words, f"{_first(f'self.{items}', wrong)}.{key}")
    return telling(f"!has(self.{items}) || !self.{items}.exists(x, {wrong})", found, words.replace("'%s'", "..."), f".{items}")


def texts(values: Iterable[str]) -> str:
    """A list of these texts."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def reserved_env_rules() -> list[Schema]:
    owner = "which the operator sets itself"
    reserved = f"self.name.startsWith('{environment.PREFIX}') || self.name in {texts(environment.RESERVED)}"
    holds = f"self.name in {texts(environment.FOR_USERS)} || !({reserved})"
    return [telling(holds, sentence(f"found '%s', {owner}", "self.name"), owner, ".name")]


def reserved_label_rules() -> list[Schema]:
    holds = " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_LABEL_PREFIXES)
    owner = "which the operator sets itself"
    return [telling(f"self.all(k, {holds})", sentence(f"found '%s', {owner}", f"self.filter(k, !({holds}))[0]"), owner)]


def label_name_rules() -> list[Schema]:
    holds, expected = f"k.matches('^{LABEL_NAME_PATTERN}$')", f"expected {LABEL_NAME_EXPECTED}"
    return [telling(f"self.all(k, {holds})", sentence(f"found '%s', {expected}", f"self.filter(k, !({holds}))[0]"), expected)]


def label_value_rules() -> list[Schema]:
    holds, expected = f"self[k].matches('^{LABEL_VALUE_PATTERN}$')", f"expected {LABEL_VALUE_EXPECTED}"
    first = f"self.filter(k, !({holds}))[0]"
    found = sentence(f"found '%s' for '%s', {expected}", f"self[{first}]", first)
    return [telling(f"self.all(k, {holds})", found, expected)]


TRIGGER_RULE = rule(
    "!self.availableNow || string(self.interval).matches('^[0.]+[a-zµ]*$')",
    "found interval and availableNow together, allowed is one of them: availableNow does not wait",
)

BUCKET_RULE = telling(
    f"!self.startsWith('s3:') || self.matches('^{BUCKET_PATTERN}$')",
    sentence("found '%s', expected s3://BUCKET/PREFIX; credentials and endpoint come from the environment", "self"),
    "expected s3://BUCKET/PREFIX; credentials and endpoint come from the environment",
)

PLACE_RULE = telling(
    "self.startsWith('/') || self.startsWith('file:///') || self.startsWith('s3:')",
    sentence(f"found '%s', expected {PLACE_EXPECTED}", "self"),
    f"expected {PLACE_EXPECTED}",
)

CRON_RULE = telling(
    f"self.matches('^{CRON_PATTERN}$')",
    sentence(f"found '%s', expected {CRON_EXPECTED}", "self"),
    f"expected {CRON_EXPECTED}",
)

CHECKPOINT_RULE = telling(
    "!self.matches('^[A-Za-z][A-Za-z0-9+.-]*:') || self.matches('^(file|s3):')",
    sentence("found the scheme '%s' in '%s', allowed: a path without scheme, file://, s3://", "self.split(':')[0]", "self"),
    "allowed: a path without scheme, file://, s3://",
)

ORIGIN_RULE = telling(
    f"self == '{EMPTY}' || self.contains('/') || self.matches('^[A-Za-z][A-Za-z0-9+.-]*:')",
    sentence(f"found '%s', {ORIGIN_EXPECTED}", "self"),
    ORIGIN_EXPECTED,
)
