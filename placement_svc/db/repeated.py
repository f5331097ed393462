"""Caches of statements that keep only what is requested repeatedly.

SQLAlchemy's statements refer to themselves. One that leaves a cache is freed only when the garbage collector
examines all old objects, which is seldom and takes long. A worker grew by 0.4 MB for each new request. One
that is never cached is freed by one of the frequent collections of young objects.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import Lock
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

REMEMBERED = 2000
"""How many keys are remembered that have been requested once, each as a number."""


class RecentValues(Generic[T]):
    """A value for each of the `size` keys that were set most recently.

    A key is kept as its hash, so two keys may have one value, though hardly ever.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[int, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if it has none."""
        return self._values.get(hash(key))

    def set(self, key: Hashable, value: T) -> T | None:
        """Set the value of a key, and return the one that it had before."""
        number = hash(key)
        with self._lock:
            before = self._values.pop(number, None)
            self._values[number] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        return before


class RecentKeys:
    """The keys that have been requested recently, at most `REMEMBERED`."""

    def __init__(self) -> None:
        self._values = RecentValues[bool](REMEMBERED)

    def is_repeated(self, key: Hashable) -> bool:
        """Return whether the key has been requested recently, and remember it."""
        return self._values.set(key, True) is not None


class RepeatedCache(Generic[P, T]):
    """A function that keeps its results for the `size` most recent arguments that have been repeated."""

    def __init__(self, function: Callable[P, T], size: int) -> None:
        self._function = function
        self._cached = lru_cache(size)(function)
        self._recent = RecentKeys()
        self.cache_info = self._cached.cache_info

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of the function, whose arguments are hashable."""
        if self._recent.is_repeated((args, tuple(kwargs.items()))):
            return self._cached(*args, **kwargs)  # type: ignore[arg-type]
        return self._function(*args, **kwargs)

    def cache_clear(self) -> None:
        """Forget all results and arguments."""
        self._recent = RecentKeys()
        self._cached.cache_clear()
