"""A mirror's lanes in a process to be killed: `-m tests.replay.lane_process SOURCE TARGET TOPIC STATE SLICE`."""

from __future__ import annotations

import sys

from kbroker.replay.mirror import Mirror, MirrorRequest, mirror_lane


def main(source: str, target: str, topic: str, state: str, slice_records: str) -> None:
    request = MirrorRequest(source, target, state, [topic], rename="copy-{topic}", slice_records=int(slice_records))
    job = Mirror(request)
    with job.held():
        for lane in job.plan():
            mirror_lane(job.read, request.job(), job.target, (lane, lane.stop))


if __name__ == "__main__":
    main(*sys.argv[1:])
