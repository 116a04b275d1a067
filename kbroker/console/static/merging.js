// Records of several partitions as one list by time, and where each partition goes on.

export const GROUP = 24;
const COUNT = 50;

// The partitions that are looked at together: of those with records, group number `group`.
export function grouped(told, wanted) {
  const filled = told.ends.flatMap((end, partition) => (end !== null && end > told.starts[partition] ? [partition] : []));
  const groups = Math.max(1, Math.ceil(filled.length / GROUP));
  const group = Math.min(groups - 1, Math.max(0, wanted));
  return { partitions: filled.slice(group * GROUP, (group + 1) * GROUP), groups, group };
}

// The order within a partition stays, whatever the records' times: so what was not taken is behind one offset.
export function merge(answers, backward) {
  const queues = answers.map((answer) => {
    const rows = answer.records.map((record) => ({ ...record, partition: answer.partition }));
    return backward ? rows.reverse() : rows;
  });
  const records = [];
  while (records.length < COUNT) {
    const heads = queues.filter((queue) => queue.length);
    if (!heads.length) break;
    records.push(heads.reduce((best, queue) => ((backward ? queue[0].timestamp > best[0].timestamp : queue[0].timestamp < best[0].timestamp) ? queue : best)).shift());
  }
  const left = new Map(answers.map((answer, index) => [answer.partition, queues[index]]));
  return { records: backward ? records : records.reverse(), left };
}

// Where each partition goes on with older records; null where there are none.
export function older(told) {
  const at = told.answers.map((answer) => {
    if (!told.backward) return [answer.partition, answer.first_offset];
    const [next] = told.left.get(answer.partition);
    return [answer.partition, next ? next.offset + 1 : answer.first_offset];
  });
  return at.some(([, offset], index) => offset > told.answers[index].log_start_offset) ? at : null;
}

export function newer(told) {
  const at = told.answers.map((answer) => {
    if (told.backward) return [answer.partition, answer.stop];
    const [next] = told.left.get(answer.partition);
    return [answer.partition, next ? next.offset : answer.next_offset];
  });
  return at.some(([, offset], index) => offset < told.answers[index].end_offset) ? at : null;
}

export const writeCursor = (at) => at.map((pair) => pair.join(":")).join(",");

export const readCursor = (text) => new Map((text ?? "").split(",").filter(Boolean).map((pair) => pair.split(":").map(Number)));
