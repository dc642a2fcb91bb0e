"""Places that meet: sinks that write where a source reads, where another sink writes, or into the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from streamtopology.jobs.connectors.file_uri import BUCKET_SCHEME, is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec, local_path, pattern_of_place
from streamtopology.jobs.connectors.sources.files.listing import linked_folders, places_at
from streamtopology.jobs.connectors.sources.kafka.options import matching, pattern_of, topics_of
from streamtopology.jobs.connectors.sources.path_patterns import fixed_part, has_pattern, name_pattern, paths_of
from streamtopology.topology import Doubt, Problem, Sink, Source, Topology

_SERVERS = "kafka.bootstrap.servers"


@dataclass(frozen=True)
class _Folder:
    """The folder, or pattern of folders, that a source reads: real names, then names or patterns.

    files_only: a pattern of files, or one file of it.
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    files_only: bool

    @staticmethod
    def all_of(path: str) -> Iterator[_Folder]:
        for pattern in paths_of(pattern_of_place(path)):
            fixed = fixed_part(pattern)
            if is_in_bucket(pattern):
                yield _Folder(_parts(fixed), _parts(pattern)[len(_parts(fixed)) :], False)
                continue
            real = Path(os.path.realpath(fixed))
            rest = Path(pattern).parts[len(Path(fixed).parts) :]
            found = list(places_at(pattern))
            files_only = not any(map(os.path.isdir, found)) and (bool(rest) or real.is_file())
            if files_only:
                yield _Folder(real.parts if rest else real.parent.parts, rest[:-1], True)
            else:
                yield _Folder(real.parts, rest, False)

    def relation(self, other: tuple[str, ...]) -> str | None:
        """The verb from the folder `other` to this one; None if neither is part of the other, or files alone are read."""
        depth = len(self.names)
        fits = all(name == part for name, part in zip(other, self.names, strict=False)) and all(
            name_pattern(part).fullmatch(name) for name, part in zip(other[depth:], self.patterns, strict=False)
        )
        if not fits:
            return None
        whole = depth + len(self.patterns)
        if len(other) > whole:
            return None if self.files_only else "lies in"
        return "is" if len(other) == whole else "contains"


def overlap_problems(topology: Topology) -> Iterator[Problem]:
    """The findings about sinks, sources and the checkpoint whose places meet, whatever the spelling of their paths."""
    for index, sink in enumerate(topology.sinks):
        for source in topology.sources:
            yield from _loop(f"spec.sinks[{index}].options", sink, source)
    for (_, first), (index, second) in combinations(enumerate(topology.sinks), 2):
        yield from _shared(f"spec.sinks[{index}].options", first, second)
    if topology.checkpoint is not None:
        yield from _checkpoint_problems(topology, topology.checkpoint)


def relation_of(sink: str, source: str) -> str | None:
    """The verb from a sink's path to a source's, such as "lies in"; None if they are apart, or one has no path."""
    with suppress(SourceError):  # a path on another machine, or no pattern: the checks of sinks and sources say so
        if sink and source:
            parts = _parts(sink)
            return next((verb for folder in _Folder.all_of(source) if (verb := folder.relation(parts))), None)
    return None


def _relation_by_links(place: str, source: Source) -> str | None:
    """`relation_of` a place and the folders that links below the source's path lead to."""
    if not place or not source.reads_descriptors or "path" not in source.options:
        return None
    with suppress(SourceError, OSError):  # the checks of sinks and sources say so
        parts = _parts(place)
        linked = (Path(folder).parts for folder in linked_folders(SourceSpec.of(source)))
        return next((f"{verb} by a link" for folder in linked if (verb := _relation(parts, folder))), None)
    return None


def _loop(below: str, sink: Sink, source: Source) -> Iterator[Problem]:
    path = sink.options.get("path", "")
    relation = relation_of(path, source.options.get("path", "")) or _relation_by_links(path, source)
    if relation is not None:
        yield Problem(
            f"{below}.path",
            f"sink {sink.name!r}: {path} {relation} the folder that source {source.name!r} reads: the sink's files "
            "would become input; give the sink a folder of its own, apart from it",
        )
    table = sink.options.get("table")
    if table is not None and all(source.options.get(name) == sink.options[name] for name in ("table", "catalog.uri")):
        sentence = f"sink {sink.name!r}: source {source.name!r} reads table {table!r}: what the sink appends would become input"
        yield Problem(f"{below}.table", f"{sentence}; give the sink another table")
    topic = sink.options.get("topic")
    if topic is not None and _is_read(source, topic) and _same_broker(sink.options, source.options):
        sentence = f"sink {sink.name!r}: source {source.name!r} reads topic {topic!r}: the sink's messages would become input"
        yield Problem(f"{below}.topic", f"{sentence}; give the sink another topic")


def _is_read(source: Source, topic: str) -> bool:
    if source.format != "kafka":
        return False
    spec, pattern = SourceSpec.of(source), None
    with suppress(SourceError):  # the check of sources says so
        pattern = pattern_of(spec)
    return topic in topics_of(spec) or (pattern is not None and topic in matching(pattern, [topic]))


def _shared(below: str, first: Sink, second: Sink) -> Iterator[Problem]:
    with suppress(SourceError):
        path = second.options.get("path", "")
        if path and "path" in first.options and _parts(path) == _parts(first.options["path"]):
            sentence = f"sink {second.name!r}: {path} is the folder of sink {first.name!r}, whose batches have the same names"
            yield Problem(f"{below}.path", f"{sentence}; give each sink a folder of its own")
    topic = second.options.get("topic")
    if topic and topic == first.options.get("topic") and _same_broker(first.options, second.options):
        sentence = f"sink {second.name!r}: sink {first.name!r} writes to topic {topic!r}, too"
        yield Doubt(f"{below}.topic", f"{sentence}; readers cannot distinguish their messages: give each a topic of its own")


def _checkpoint_problems(topology: Topology, checkpoint: str) -> Iterator[Problem]:
    with suppress(SourceError):  # the check of the checkpoint says so
        parts = _parts(checkpoint)
        for index, sink in enumerate(topology.sinks):
            relation = _relation(_sink_parts(sink), parts)
            if relation is not None:
                sentence = f"sink {sink.name!r}: {sink.options['path']} {relation} the checkpoint {checkpoint}"
                yield Problem(f"spec.sinks[{index}].options.path", f"{sentence}; give each a folder of its own, apart")
        for index, source in enumerate(topology.sources):
            relation = relation_of(checkpoint, source.options.get("path", ""))
            if relation is None or (relation == "lies in" and not _reads_below(source)):
                relation = _relation_by_links(checkpoint, source)
            if relation is not None:
                sentence = f"source {source.name!r}: the checkpoint {checkpoint} {relation} the folder that it reads"
                remedy = "its own state and dead letters would become input; give the checkpoint a folder apart from it"
                yield Problem(f"spec.sources[{index}].options.path", f"{sentence}: {remedy}")


def _reads_below(source: Source) -> bool:
    return has_pattern(source.options["path"]) or source.options.get("recursiveFileLookup", "").lower() == "true"


def _relation(one: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    if not one or one[: len(other)] != other[: len(one)]:
        return None
    return "is" if len(one) == len(other) else "lies in" if len(one) > len(other) else "contains"


def _sink_parts(sink: Sink) -> tuple[str, ...]:
    with suppress(SourceError):
        return _parts(sink.options["path"]) if sink.options.get("path") else ()
    return ()


def _parts(path: str) -> tuple[str, ...]:
    if is_in_bucket(path):
        return (BUCKET_SCHEME, *filter(None, path.removeprefix(BUCKET_SCHEME).split("/")))
    return Path(os.path.realpath(local_path(path))).parts


def _same_broker(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """True if two lists of servers have one in common."""
    servers = [{server.strip().lower() for server in options.get(_SERVERS, "").split(",")} for options in (one, other)]
    return bool((servers[0] & servers[1]) - {""})
