"""Which commands mean anything to an engine in a given state: never decided by the engine."""

from __future__ import annotations

from poolproof.contract.commands import Command, Reset
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.reference.engine_model import EngineModel

__all__ = ["undefined_for_engine"]


def undefined_for_engine(model: EngineModel, command: Command) -> str | None:
    """Why the command means nothing in this state, in words; None where it is legal."""
    match command:
        case Submit():
            return _undefined_submit(model, command)
        case Cancel(request_id=request_id):
            return None if request_id in model.live else "the request is not there"
        case PlanStep():
            return _undefined_plan(model)
        case RunStep():
            return _undefined_run(model) or _undefined_answer(command.answer)
        case AnswerStep():
            return _undefined_now(model) or _undefined_answer(command)
        case Arrive():
            return _undefined_arrive(model, command)
        case Repeat():
            return _undefined_repeat(model, command)
        case Reset():
            return None
        case _:
            return "it is not a command of engines"


def _undefined_plan(model: EngineModel) -> str | None:
    is_full = len(model.in_flight) >= model.profile.steps_in_flight
    return "as many steps are in flight as may be" if is_full else None


def _undefined_run(model: EngineModel) -> str | None:
    return _undefined_plan(model) or _answered_early(model, len(model.in_flight) + 1)


def _undefined_now(model: EngineModel) -> str | None:
    if not model.in_flight:
        return "no step is in flight"
    return _answered_early(model, len(model.in_flight))


def _answered_early(model: EngineModel, num_in_flight: int) -> str | None:
    profile = model.profile
    is_early = bool(model.live) and num_in_flight < profile.steps_in_flight
    if profile.answers == "when-full" and is_early:
        return "no step is answered while another can be planned"
    return None


def _undefined_answer(command: AnswerStep) -> str | None:
    is_known = command.token >= 0 and command.num_accepted >= 0 and command.num_drafts >= 0
    return None if is_known else "a number is negative"


def _undefined_arrive(model: EngineModel, command: Arrive) -> str | None:
    if not 0 <= command.place < len(model.transfers):
        return "no such transfer is in flight"
    if command.place not in model.places_to_arrive():
        return "one of its kind that began before it is still in flight"
    if command.is_lost and model.profile.transfers == "never-fail":
        return "no transfer fails"
    if command.is_lost not in (0, 1):
        return "is_lost is 0 or 1"
    return _undefined_part(model, command)


def _undefined_part(model: EngineModel, command: Arrive) -> str | None:
    """What a transfer may move before it is lost."""
    num_blocks = len(list(model.transfers.values())[command.place].blocks)
    if not 0 <= command.num_moved <= num_blocks:
        return "the transfer has fewer blocks"
    if command.num_moved and not command.is_lost:
        return "what is not lost moves all of its blocks"
    if command.num_moved and model.profile.lost_transfers == "move-nothing":
        return "a transfer that is lost moves nothing"
    return None


def _undefined_repeat(model: EngineModel, command: Repeat) -> str | None:
    if model.profile.notices == "once":
        return "the engine is told once of what has ended"
    if not 0 <= command.before_last < len(model.ended):
        return "no such transfer has ended"
    transfer, _ = model.ended[-1 - command.before_last]
    is_reused = transfer.transfer_id in model.transfer_ids()
    return "another transfer has its number by now" if is_reused else None


def _undefined_submit(model: EngineModel, command: Submit) -> str | None:
    tokens = command.chain.tokens
    if command.request_id in model.requests or command.request_id < 0:
        return "the number was given to another request"
    if not tokens or STOP_TOKEN in tokens or min(tokens) < 0:
        return "a prompt has at least one token, and none that stops it"
    if command.max_new_tokens < 1:
        return "a request wants at least one token"
    if len(tokens) + command.max_new_tokens > model.most_tokens:
        return f"a request may have {model.most_tokens} tokens"
    return _undefined_images(model, command)


def _undefined_images(model: EngineModel, command: Submit) -> str | None:
    """Images stand in the prompt one after the other, and one image always has as many tokens."""
    begin, most = 0, model.most_image_tokens
    for image in command.chain.images:
        if image.offset < begin or image.offset + image.length > len(command.chain.tokens):
            return "images overlap, or leave the prompt"
        if not 1 <= image.length <= most:
            return f"an image has 1 to {most} positions" if most else "there are no images"
        if model.image_sizes.get(image.identifier, image.length) != image.length:
            return f"image {image.identifier!r} had another number of positions before"
        begin = image.offset + image.length
    return None
