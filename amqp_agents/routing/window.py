"""Attempts and failures of the last minute, in a fixed number of buckets."""

BUCKETS = 10


class Window:
    """A sliding window that forgets by buckets, so that its size never depends on traffic.

    What it counts lies between nine tenths and all of `seconds` back.

    >>> window = Window(60.0)
    >>> window.add(0.0, failed=True)
    >>> window.add(30.0, failed=False)
    >>> window.counts(30.0), window.counts(60.0), window.counts(1000.0)
    ((2, 1), (1, 0), (0, 0))
    """

    def __init__(self, seconds: float) -> None:
        self._bucket_seconds = seconds / BUCKETS
        self._buckets: dict[int, tuple[int, int]] = {}

    def add(self, now: float, *, failed: bool) -> None:
        """Count one attempt; a time older than the window counts for nothing."""
        self._forget(now)
        number = int(now // self._bucket_seconds)
        attempts, failures = self._buckets.get(number, (0, 0))
        self._buckets[number] = (attempts + 1, failures + failed)

    def counts(self, now: float) -> tuple[int, int]:
        """Return attempts and failures."""
        self._forget(now)
        attempts = sum(attempts for attempts, _ in self._buckets.values())
        return attempts, sum(failures for _, failures in self._buckets.values())

    def clear(self) -> None:
        """Forget everything."""
        self._buckets.clear()

    def _forget(self, now: float) -> None:
        oldest = int(now // self._bucket_seconds) - BUCKETS + 1
        for number in [number for number in self._buckets if number < oldest]:
            del self._buckets[number]
