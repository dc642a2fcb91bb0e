"""Arrays in JSON: little-endian bytes, compressed, in base64."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_Scalar = TypeVar("_Scalar", bound=np.generic)


def pack(array: npt.NDArray[Any]) -> str:
    """The text that `unpack` reads back, given the same dtype; shapes are the caller's to know."""
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little_endian.tobytes(), level=1)).decode("ascii")


def unpack(wire: Mapping[str, Any], name: str, dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """The flat array in field `name`. KeyError when there is none, ValueError when it is damaged."""
    try:
        raw = zlib.decompress(base64.b64decode(wire[name], validate=True))
        return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
    except (binascii.Error, zlib.error, ValueError, TypeError) as damage:
        raise ValueError(f"field '{name}' is damaged: {damage}") from damage
