"""Search for many requests: waiting queries are ranked together, so that many cost little more than one."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors
from vsehub.web.catalogue import DEPTH, Catalogue

TOGETHER = 64  # queries that are ranked at once
SCORES = 2**25  # scores in memory at most
WAITING = 512  # requests that may wait at most


class Busy(Exception):
    """Too many requests wait."""


@dataclass(frozen=True, eq=False)
class Lists:
    """The plain and the corrected list of a query: values and positions (k,) each.

    ranks: item -> plain rank, within the searched depth. seconds: from the question to the lists.
    """

    plain: tuple[Tensor, Tensor]
    corrected: tuple[Tensor, Tensor]
    ranks: dict[int, int]
    seconds: float


@dataclass(eq=False)
class _Question:
    vector: Tensor | None  # (1, D)
    text: str | None
    k: int
    criterion: str
    future: "Future[Lists]" = field(default_factory=Future)
    began: float = field(default_factory=time.perf_counter)


class Searcher:
    """Ranks items for queries in one thread; all waiting queries are ranked together.

    encode: turns texts into vectors (n, D); None if texts cannot be asked.
    """

    def __init__(self, catalogue: Catalogue, encode: Callable[[Sequence[str]], Tensor] | None = None):
        self._catalogue, self._encode = catalogue, encode
        self._waiting: queue.Queue[_Question | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="vsehub-search")
        self._thread.start()

    def ask(self, k: int, criterion: str, *, text: str | None = None, vector: Tensor | None = None) -> "Future[Lists]":
        """The lists of a text or of a vector (1, D). Raises Busy where too many requests wait."""
        question = _Question(vector, text, k, criterion)
        try:
            self._waiting.put_nowait(question)
        except queue.Full:
            raise Busy from None
        return question.future

    def close(self) -> None:
        """End the thread after the waiting questions are answered."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (first := self._waiting.get()) is not None:
            together = [first]
            ended = False
            while len(together) < TOGETHER and not ended:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                ended = more is None
                if more is not None:
                    together.append(more)
            self._answer([one for one in together if one.future.set_running_or_notify_cancel()])
            if ended:
                return

    @torch.inference_mode()
    def _answer(self, questions: list[_Question]) -> None:
        asked = [(one, one.vector) for one in questions if one.vector is not None]
        texts = [one for one in questions if one.vector is None]
        try:
            if texts:
                assert self._encode is not None
                asked += zip(texts, self._encode([str(one.text) for one in texts]).split(1), strict=True)
        except Exception as error:
            _fail(texts, error)
        for name in {one.criterion for one, _ in asked}:
            own = [(one, vector) for one, vector in asked if one.criterion == name]
            try:
                depth = min(len(self._catalogue), max(DEPTH, *(one.k for one, _ in own)))
                at_once = max(1, SCORES // len(self._catalogue))
                for first in range(0, len(own), at_once):
                    self._rank_together(name, own[first : first + at_once], depth)
            except Exception as error:
                _fail([one for one, _ in own], error)

    def _rank_together(self, name: str, asked: Sequence[tuple[_Question, Tensor]], depth: int) -> None:
        dim = self._catalogue.vectors.shape[1]
        queries = as_vectors("queries", torch.cat([vector for _, vector in asked]), columns=dim)
        correction = self._catalogue.rankings[name].correction
        corrections = [None] if correction is None else [None, correction]
        found = nearest(queries, self._catalogue.items, depth, corrections)
        for row, (one, _) in enumerate(asked):
            plain, corrected = (
                (values[row, : one.k].clone(), positions[row, : one.k].clone())
                for values, positions in (found[0], found[-1])
            )
            ranks = {item: rank for rank, item in enumerate(found[0][1][row].tolist(), 1)}
            one.future.set_result(Lists(plain, corrected, ranks, time.perf_counter() - one.began))


def _fail(questions: Sequence[_Question], error: Exception) -> None:
    for one in questions:
        if not one.future.done():
            one.future.set_exception(error)
