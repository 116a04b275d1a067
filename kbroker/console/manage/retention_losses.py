"""Which records retention deletes when a topic's settings change: by retention's own decision over the logs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config.topic import log_config
from kbroker.console.manage.context import plural
from kbroker.console.manage.setting_words import in_words
from kbroker.storage.manager.retention import decide, look_at
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.config import LogConfig
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields
    from kbroker.metadata.image import TopicImage

_DECIDING = ("cleanup.policy", "retention.ms", "retention.bytes")


async def warnings_of(context: Context, fields: Fields) -> list[str]:
    """Sentences about what is deleted by the new settings and would be kept by those of now; none where nothing is."""
    given, unset = fields.settings("set"), fields.texts("unset")
    if not any(name in _DECIDING for name in (*given, *unset)):
        return []
    topic = context.topic(fields.text("name"))
    config = context.parts.services.config
    now = log_config(config, topic.configs)
    kept = {name: value for name, value in topic.configs.items() if name not in unset}
    then = log_config(config, {**kept, **given})
    if not _is_tighter(now, then):
        return []
    logs, segments, size, away = await _losses(context, topic, now, then)
    found = []
    if segments:
        found.append(
            f"Within minutes {plural(segments, 'segment')} with {in_words('bytes', str(size))} of "
            f"{plural(logs, 'partition')} {'is' if segments == 1 else 'are'} deleted here, which the settings of now "
            "keep."
        )
    if away:
        found.append(
            f"Other brokers have {plural(away, 'partition')}: what is older or larger there than the settings allow "
            "then is deleted within minutes."
        )
    return found


def _is_tighter(now: LogConfig, then: LogConfig) -> bool:
    """Whether anything at all can be deleted that is kept now."""
    if not then.delete:
        return False
    return not now.delete or any(
        later >= 0 and (earlier < 0 or later < earlier)
        for earlier, later in (
            (now.retention_ms, then.retention_ms),
            (now.retention_bytes, then.retention_bytes),
        )
    )


async def _losses(context: Context, topic: TopicImage, now: LogConfig, then: LogConfig) -> tuple[int, int, int, int]:
    """Of the logs here how many lose segments, how many these are, and their bytes; partitions that are elsewhere."""
    services = context.parts.services
    pace, now_ms = context.parts.sources.slices.pace(), services.clock.now_ms()
    logs = segments = size = away = 0
    for each in topic.partitions:
        await pace
        log = services.log_manager.logs.get(TopicPartition(topic.name, each.partition))
        if log is None:
            away += 1
            continue
        gone = decide(look_at(log, now_ms, wanted=now), now, now_ms).segment_count
        facts = look_at(log, now_ms, wanted=then)
        more = decide(facts, then, now_ms).segment_count - gone
        lost = sum(segment.size for segment in facts.segments[gone : gone + more])
        if more > 0 and lost:
            logs, segments, size = logs + 1, segments + more, size + lost
    return logs, segments, size, away
