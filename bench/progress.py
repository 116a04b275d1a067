"""The progress bar with the time left: in expected seconds, corrected by how long the steps really took."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """One bar over all steps; a step has a name and an expected length."""

    def __init__(self, steps: list[tuple[str, float]]) -> None:
        from tqdm import tqdm

        self._lengths = dict[str, list[float]]()
        self._left = list(steps)
        total = sum(length for _, length in steps)
        form = "{l_bar}{bar}| {elapsed} gone{postfix}"
        self._bar: Any = tqdm(total=total, file=sys.stderr, bar_format=form, dynamic_ncols=True, leave=False)
        self._begin = time.monotonic()
        self._show("")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._bar.write(text, file=sys.stderr)

    def begin(self, name: str) -> None:
        self._begin = time.monotonic()
        self._show(name)

    def finish(self, name: str) -> None:
        """The next step of that name is over."""
        place = next((at for at, (other, _) in enumerate(self._left) if other == name), None)
        if place is None:
            return
        _, expected = self._left.pop(place)
        self._lengths.setdefault(name, []).append(time.monotonic() - self._begin)
        self._bar.update(expected)
        self._show(name)

    def seconds_left(self) -> float:
        """Steps that were run before count with their mean time, others with what was expected of them."""
        return sum(
            sum(self._lengths[name]) / len(self._lengths[name]) if name in self._lengths else expected
            for name, expected in self._left
        )

    def _show(self, name: str) -> None:
        left = self.seconds_left()
        self._bar.set_postfix_str(f"{int(left) // 60}:{int(left) % 60:02d} left  {name}")
