"""What a verification's numbers say about the guarantees that were chosen."""

from __future__ import annotations

from kbroker.types import JsonObject


def judge(result: JsonObject, *, strict: bool = False) -> list[str]:
    """A sentence for each promise that was not kept; none when all were.

    Loss of acknowledged records counts unless acks is 0; duplicates and order where the producer promised them, with
    `strict` always.  Changed values and unknown ids always count.
    """
    total, promises = result["total"], result["promises"]
    broken = []
    if total["lost"] and (promises["none_lost"] or strict):
        broken.append(f"{total['lost']:,} acknowledged records are lost")
    if total["duplicates"] and (promises["none_duplicated"] or strict):
        broken.append(f"{total['duplicates']:,} records are there more than once too often")
    if total["out_of_order"] and (promises["order_kept"] or strict):
        broken.append(f"{total['out_of_order']:,} records come after a later one of their source")
    if total["damaged"]:
        broken.append(f"{total['damaged']:,} records have another key, value or header than was sent")
    if total["unknown"]:
        broken.append(f"{total['unknown']:,} records have an id of this replay that was never given")
    return broken
