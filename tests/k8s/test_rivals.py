"""Topologies whose StatefulSets would have the same name: one of the two makes way."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamtopology.k8s import names
from streamtopology.k8s.decide.rivals import rival_of

Object = dict[str, Any]
words = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("-".join)
Having = set[tuple[str, str]]


def topology(name: str, classes: set[str], created: str) -> Object:
    executors = [{"name": each} for each in sorted(classes)]
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"executors": executors}}


def loses(one: Object, all_of_them: dict[str, Object], having: Having) -> bool:
    return bool(rival_of(one, all_of_them.get, lambda each, made: (each["metadata"]["name"], made) in having))


@given(st.dictionaries(words, st.tuples(st.sets(words, min_size=1, max_size=3), st.sampled_from("123")), max_size=6), st.data())
def test_no_two_topologies_that_go_ahead_have_a_stateful_set_in_common(drawn: dict[str, Any], data: st.DataObject) -> None:
    every = {name: topology(name, *rest) for name, rest in drawn.items()}
    made = {name: {names.executor_class(name, each) for each in classes} for name, (classes, _) in drawn.items()}
    having: Having = set()
    for name in data.draw(st.permutations(sorted(every))) if every else ():
        if data.draw(st.booleans()) and not loses(every[name], every, having):
            having |= {(name, each) for each in made[name]}
    assert len({each for _, each in having}) == len(having)
    ahead = [name for name in every if not loses(every[name], every, having)]
    together = [each for name in ahead for each in made[name]]
    assert len(set(together)) == len(together)
    for name in {name for name, _ in having}:
        assert name in ahead, "one that runs makes way for none"


def test_rival_is_named_with_its_class() -> None:
    first, second = topology("flow", {"a-b"}, "1"), topology("flow-a", {"b"}, "2")
    both = {"flow": first, "flow-a": second}
    assert rival_of(first, both.get, lambda *_: False) == ""
    text = rival_of(second, both.get, lambda *_: False)
    assert "StatefulSet flow-a-b, which is that of class 'a-b' of the topology 'flow'" in text
