"""What a call of a method with the transport does in the caller: refs among its keywords become positional.

Ray moves tensors of refs in positional arguments alone. It applies the decorator that `method` attaches to a method
where that is called, around the submission:

    actor.f.remote(a, x=ref) ──► invocation ──► Ray submits f(a, ref)

Any thread.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import ray
from ray._private import worker as _ray_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PARAMETER = inspect.Parameter


def is_moved(value: Any) -> bool:
    """Return whether a value is a ref of Ray's whose arrays travel by a transport."""
    manager = _ray_worker.global_worker.rdt_manager
    return isinstance(value, ray.ObjectRef) and bool(manager.is_managed_object(value.hex()))


def refuse_for_task(*args: Any) -> None:
    """Raise TypeError for refs whose arrays Ray would move, if these were arguments of an actor's method."""
    for value in filter(is_moved, args):
        raise TypeError(
            f"Ray does not move the arrays of {value} to tasks: give it in a list, task.remote([ref]), and ray.get it "
            "in the task"
        )


def refuse_keywords(actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError for refs by keyword whose arrays the actor neither has made nor gets by position."""
    there = {arg for arg in args if isinstance(arg, ray.ObjectRef)}
    manager: Any = _ray_worker.global_worker.rdt_manager  # without types
    for value in filter(is_moved, kwargs.values()):
        source = manager.get_rdt_metadata(value.hex()).src_actor
        if value not in there and getattr(source, "_actor_id", None) != actor._actor_id:
            raise TypeError(f"Ray does not move the arrays of {value} by keyword: give it by position")


def invocation_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the decorator of a method's invocations, around its own if it has one. Actors' handles carry it."""
    names: list[str] = []
    for each in list(inspect.signature(function).parameters.values())[1:]:  # without self
        if each.kind not in (_PARAMETER.POSITIONAL_ONLY, _PARAMETER.POSITIONAL_OR_KEYWORD):
            break
        names.append(each.name)
    return functools.partial(_decorated, tuple(names), getattr(function, "__ray_invocation_decorator__", None))


def _decorated(names: tuple[str, ...], inner: Any, invocation: Callable[..., Any]) -> Callable[..., Any]:
    decorated = invocation if inner is None else inner(invocation)

    def invoke(args: Any, kwargs: Any) -> Any:
        return decorated(*_positional(names, list(args), dict(kwargs)))

    return invoke


def _positional(names: tuple[str, ...], args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments with refs among the keywords, and the keywords before these, made positional where possible."""
    for name in names[len(args) :]:
        if name not in kwargs or not any(map(is_moved, kwargs.values())):
            break  # of a parameter that has its default, those behind it must stay keywords
        args.append(kwargs.pop(name))
    return args, kwargs
