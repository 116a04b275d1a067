"""A caught error that is kept keeps no frames, as `kbroker.errors` says: what a machine can see of that.

An error holds its frames, frames hold their locals and their callers' frames, and so an error that lies in one of those
locals is a cycle: with the request, its answer and all that was made of it.
"""

from __future__ import annotations

import ast
import errno
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, again, bare

PACKAGE = Path(kbroker.__file__).parent
# Programs that end, and what runs in Spark.
ELSEWHERE = {"cli", "client", "migration", "replay", "testing"}
LOG = {"critical", "debug", "error", "exception", "info", "log", "warning"}
# What reads an error, or makes another one of it, and keeps nothing.
READERS = LOG | {
    "_answered",
    "_as_generation",
    "_complain",
    "_fail",
    "_failed",
    "_header_of",
    "_is_needed",
    "_is_registry_error",
    "_not_stored",
    "_primary_code",
    "_refuse",
    "_refused",
    "_refused_list",
    "_survive",
    "_tell",
    "_status_of",
    "_tell_failure",
    "_translated",
    "_unusable",
    "_validate_header",
    "MissingLibraryError",
    "add",
    "again",
    "bare",
    "code_for",
    "config_row",
    "fail",
    "failed_to_change",
    "getattr",
    "isinstance",
    "malformed",
    "note",
    "note_damage",
    "refusal",
    "report",
    "storage_error",
    "str",
    "throw",
    "type",
    "write_error",
}
# What a function makes to wait for; it keeps the error that it came to.
OUTAGES = {"_defects", "_outage", "_outages", "_refusals", "outage"}
"""What `kbroker.outage` is called where it is used: its `failed` writes a line, and keeps nothing."""
FUTURES = {
    "create_future", "create_task", "ensure_future", "gather", "run_in_executor", "shield", "submit", "wrap_future",
}  # fmt: skip
TASKS = {"create_task", "ensure_future"}
OF_THREADS = {"run_in_executor", "submit", "wrap_future"}
PUTS = {"add", "append", "insert"}
WAITS = {"shield", "wait_for", "wrap_future"}

MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in ELSEWHERE]


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_a_line(call: ast.Call) -> bool:
    """Whether an outage is spoken of."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "failed":
        return False
    return ast.unparse(function.value).rpartition(".")[2] in OUTAGES


def _is_kept(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether the caught error itself is put somewhere here, other than into a text or another error's cause."""
    within, parent = node, above[node]
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred | ast.BoolOp | ast.IfExp | ast.keyword):
        within, parent = parent, above[parent]
    if isinstance(parent, ast.Call):
        return within is not parent.func and _name_of(parent) not in READERS and not _is_a_line(parent)
    if isinstance(parent, ast.IfExp | ast.Compare):
        return False
    return isinstance(
        parent,
        ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.Return | ast.Yield | ast.Dict | ast.Set | ast.BinOp
        | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    )  # fmt: skip


def kept(tree: ast.AST) -> Iterator[int]:
    """Lines in which a caught error is kept as it is."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        above = {child: node for node in ast.walk(handler) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(handler):
            is_it = isinstance(node, ast.Name) and node.id == handler.name and isinstance(node.ctx, ast.Load)
            if is_it and _is_kept(node, above):
                yield node.lineno


def raised(tree: ast.AST) -> Iterator[int]:
    """Lines that raise an error which a name still holds: the frame that has the name is one of the error's."""
    caught: dict[ast.AST, set[str]] = {}
    for node in ast.walk(tree):  # From the outside inwards.
        names = set(caught.get(node, ()))
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            names.add(node.name)  # Python deletes it at the handler's end.
        for child in ast.iter_child_nodes(node):
            caught[child] = names
        if not isinstance(node, ast.Raise) or node.exc is None or isinstance(node.exc, ast.Call):
            continue
        is_class = isinstance(node.exc, ast.Name) and node.exc.id.lstrip("_")[:1].isupper()
        if not is_class and not (isinstance(node.exc, ast.Name) and node.exc.id in names):
            yield node.lineno


def _holds_futures(value: ast.AST) -> bool:
    """Whether this makes a future, or a list of them."""
    if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        value = value.value if isinstance(value, ast.DictComp) else value.elt
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return any(map(_holds_futures, value.elts))
    return isinstance(value, ast.Call) and _name_of(value) in FUTURES


def _bound(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The names of a function, with what each is bound to or taken from."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For | ast.comprehension):
            yield node.target, node.iter


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def awaited(tree: ast.AST) -> Iterator[int]:
    """Lines that raise the error of a future which a local holds: it keeps its error, whose frames have the local.
    Those that are deleted when the wait is over are left out."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        made: set[str] = set()
        for target, value in _bound(function):
            if _holds_futures(value) or (isinstance(value, ast.Name) and value.id in made):
                made |= _names_in(target)
        made -= {gone.id for node in nodes if isinstance(node, ast.Delete) for gone in node.targets
                 if isinstance(gone, ast.Name)}  # fmt: skip
        for node in nodes:
            waited: ast.AST | None = None
            if isinstance(node, ast.Await):
                waited = node.value
                if isinstance(waited, ast.Call) and _name_of(waited) in WAITS and waited.args:
                    waited = waited.args[0]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "result":
                waited = node.func.value
            if isinstance(waited, ast.Name) and waited.id in made:
                yield node.lineno


def _is_attribute(target: ast.AST) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute)


def stored(tree: ast.AST) -> Iterator[int]:
    """Lines that put the future of a thread's job into an object: it keeps its error, whose frames have what the job
    works on, and who waits for it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        bound = list(_bound(function))
        made = {target.id for target, value in bound if _is_of_a_thread(value) and isinstance(target, ast.Name)}
        for target, value in bound:
            if _is_attribute(target) and (_is_of_a_thread(value) or _names_in(value) & made):
                yield target.lineno
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in PUTS:
                continue
            if _is_attribute(node.func.value) and any(_has_of_a_thread(each, made) for each in node.args):
                yield node.lineno


def _is_of_a_thread(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and _name_of(value) in OF_THREADS


def _has_of_a_thread(value: ast.AST, made: set[str]) -> bool:
    return any(_is_of_a_thread(each) for each in ast.walk(value)) or bool(_names_in(value) & made)


def _own_attribute(target: ast.AST) -> str | None:
    is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return target.attr if is_own and isinstance(target, ast.Attribute) else None


def unforgotten(tree: ast.AST) -> Iterator[int]:
    """Lines that put a task into an attribute of its object that the object never empties: a task that was cancelled
    keeps that, and with it the object."""
    for cls in ast.walk(tree):
        if not isinstance(cls, ast.ClassDef):
            continue
        begun: dict[str, int] = {}
        emptied: set[str | None] = set()
        for function in cls.body:
            if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            for target, value in _bound(function):
                name = _own_attribute(target)
                if name is not None and isinstance(value, ast.Call) and _name_of(value) in TASKS:
                    begun[name] = target.lineno
                elif isinstance(value, ast.Constant) and value.value is None and function.name != "__init__":
                    emptied.add(name)
        yield from (line for name, line in begun.items() if name not in emptied)


# Futures that only come to results.
WITHOUT_ERRORS = {
    "kbroker/storage/manager/log_closing.py",
    "kbroker/replication/commit_wait.py",
    "kbroker/cluster/zookeeper/kazoo_session.py",
    "kbroker/coordinator/share/share_states.py",
}

# Futures of threads whose jobs return what fails, bare, or that are forgotten once they are over.
WITH_BARE_ERRORS = {
    "kbroker/cluster/kraft/replicated_log.py",
    "kbroker/storage/log/local_log.py",
    "kbroker/storage/manager/log_checkpoints.py",
    "kbroker/storage/recovery/recovery_saver.py",
}


def broken_rules(name: str, text: str) -> Iterator[str]:
    """What a module does with errors that it may not do, and what it is to do instead."""
    tree = ast.parse(text)
    yield from (f"{name}:{line}: use bare(error)" for line in kept(tree))
    yield from (f"{name}:{line}: use again(error)" for line in raised(tree))
    if "with_traceback" in text and name != "kbroker/errors.py":
        yield f"{name}: use bare(error)"
    if name not in WITHOUT_ERRORS:
        yield from (f"{name}:{line}: delete the local behind its await" for line in awaited(tree))
    if name not in WITH_BARE_ERRORS:
        yield from (f"{name}:{line}: have the job return bare(error)" for line in stored(tree))
    yield from (f"{name}:{line}: forget the task where it ends" for line in unforgotten(tree))


def test_no_error_is_kept_with_its_frames() -> None:
    """What a request has left would stay until all of the broker's objects are walked, or for good."""
    found = [
        rule
        for path in MODULES
        for rule in broken_rules(str(path.relative_to(PACKAGE.parent)), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "statement",
    [
        "self.error = error", "found[name] = error", "return error", "all = [error] * 3", "settled(error)",
        "done(None, error)", "x = {name: error for name in names}", "x = (Outcome(name, error) for name in names)",
        "first = first or error", "x.append(error)", "yield error", "x = (None, error)", "x = error if ok else None",
    ],
)  # fmt: skip
def test_a_kept_error_is_found(statement: str) -> None:
    """The rule would be one that nothing breaks."""
    text = f"def f():\n    try:\n        pass\n    except KafkaError as error:\n        {statement}\n"
    assert list(kept(ast.parse(text)))


@pytest.mark.parametrize(
    "statement",
    [
        "self.error = bare(error)", "found[name] = bare(error)", "return bare(error)", "settled(bare(error))",
        "raise", "raise Other() from error", "raise Other(str(error)) from None", "logger.error('no: %s', error)",
        "code = error.code", "text = f'{error}'", "x = str(error) if isinstance(error, OSError) else ''",
    ],
)  # fmt: skip
def test_an_error_that_is_read_is_none_that_is_kept(statement: str) -> None:
    """The rule would be in the way of what is right."""
    text = f"def f():\n    try:\n        pass\n    except KafkaError as error:\n        {statement}\n"
    assert not list(kept(ast.parse(text)))


@pytest.mark.parametrize("statement", ["raise found", "raise self.error", "raise one.error or KafkaError()"])
def test_a_raised_error_that_something_holds_is_found(statement: str) -> None:
    """The same."""
    assert list(raised(ast.parse(f"def f(found):\n    {statement}\n")))
    caught = "def f():\n    try:\n        pass\n    except ValueError as found:\n        raise found from None\n"
    assert not list(raised(ast.parse(caught)))
    assert not list(raised(ast.parse("raise KafkaError\nraise again(found)\nraise _NoneError\n")))


def test_an_awaited_local_is_found() -> None:
    """The same."""
    text = "async def f():\n    task = loop.create_task(g())\n    await asyncio.shield(task)\n"
    assert list(awaited(ast.parse(text)))
    assert not list(awaited(ast.parse(f"{text}    del task\n")))
    for text in (
        "def f():\n    job = pool.submit(g)\n    return job.result()\n",
        "def f():\n    jobs = [(x, pool.submit(x)) for x in all]\n    for x, job in jobs:\n        job.result()\n",
        "async def f():\n    task = ensure_future(g())\n    await wait([task])\n    task.result()\n",
    ):
        assert list(awaited(ast.parse(text))), text
    assert not list(awaited(ast.parse("def f():\n    job = pool.submit(g)\n    return job\n")))


@pytest.mark.parametrize(
    "statement",
    [
        "self.job = pool.submit(g)", "self.jobs[1] = pool.submit(g)", "self.jobs.append((1, pool.submit(g)))",
        "job = loop.run_in_executor(None, g); self.jobs.add(job)", "job = pool.submit(g); self.job, self.x = job, 1",
    ],
)  # fmt: skip
def test_a_stored_future_of_a_thread_is_found(statement: str) -> None:
    """The same."""
    assert list(stored(ast.parse(f"def f(self):\n    {statement}\n")))


def test_a_future_that_is_handed_on_is_none_that_is_stored() -> None:
    """The rule would be in the way of what is right."""
    for statement in ("jobs.append(pool.submit(g))", "pool.submit(g)", "self.x = await loop.run_in_executor(None, g)"):
        assert not list(stored(ast.parse(f"async def f(self):\n    {statement}\n"))), statement


def test_a_task_that_its_object_never_forgets_is_found() -> None:
    """The same."""
    text = """
class A:
    def __init__(self):
        self._task = None
    def begin(self):
        self._task = self._loop.create_task(self.run())
    def close(self):
        self._task.cancel()
"""
    assert list(unforgotten(ast.parse(text)))
    assert not list(unforgotten(ast.parse(f"{text}        self._task = None\n")))
    assert not list(unforgotten(ast.parse(f"{text}        task, self._task = self._task, None\n")))


def _caught() -> KafkaError:
    try:
        try:
            raise ValueError("why")
        except ValueError as cause:
            raise InvalidRequestError("not like this") from cause
    except KafkaError as error:
        return bare(error)


def test_a_bare_error_leaves_no_cycle_with_its_holder() -> None:
    """Neither by its own frames nor by those of what led to it."""

    def hold() -> None:
        held = [_caught() for _ in range(3)]
        assert len(held) == 3

    gc.collect()
    gc.disable()
    try:
        hold()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_kept_error_is_raised_as_an_equal_one() -> None:
    """Its holder would be in a cycle with the frames that it passes, which become more each time it is raised."""
    for error in (
        KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "why"),
        InvalidRequestError("why"),
        OSError(errno.EIO, "a failure", "/a/file"),
    ):
        copied = again(error)
        assert copied is not error and type(copied) is type(error)
        assert (copied.args, str(copied), vars(copied)) == (error.args, str(error), vars(error))
        if isinstance(error, OSError) and isinstance(copied, OSError):
            assert (copied.errno, copied.filename) == (error.errno, error.filename)
