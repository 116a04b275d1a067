// Records of several partitions as one list by time, and where each partition goes on.

export const GROUP = 24;
export const COUNT = 50;

// Where each partition with records is looked at from, by the kind of the look, or by the cursor of the page before.
export function placesOf({ starts, ends }, asked, cursor) {
  const found = new Map();
  ends.forEach((end, partition) => {
    const first = starts[partition];
    if (end === null || end <= first) return;
    const kind = { newest: end, oldest: first, time: first, before: first, offset: cursor.size ? first : Number(asked.value) || 0 }[asked.from];
    found.set(partition, Math.max(first, Math.min(end, cursor.get(partition) ?? kind)));
  });
  return found;
}

// The partitions that can have one of the next records: those whose own next one is among the first, and those of which
// it is not known.
export function candidates(heads, backward) {
  const there = heads.filter((head) => !head.is_end);
  const known = there.filter((head) => head.timestamp !== null).sort((one, other) => (backward ? other.timestamp - one.timestamp : one.timestamp - other.timestamp));
  return [...known.slice(0, COUNT), ...there.filter((head) => head.timestamp === null)].map((head) => head.partition);
}

// The order within a partition stays, whatever the records' times: so what was not taken is behind one offset.  Where a
// partition may go on with a record that was not read yet the list ends, unless a filter has passed over what is there.
export function merge(answers, backward, isFiltered) {
  const queues = answers.map((answer) => {
    const rows = answer.records.map((record) => ({ ...record, partition: answer.partition }));
    return backward ? rows.reverse() : rows;
  });
  const goesOn = answers.map((answer) => (backward ? answer.first_offset > answer.log_start_offset : answer.next_offset < answer.end_offset));
  const records = [];
  while (records.length < COUNT) {
    const heads = queues.filter((queue) => queue.length);
    if (!heads.length) break;
    if (!isFiltered && records.length && queues.some((queue, index) => !queue.length && goesOn[index])) break;
    records.push(heads.reduce((best, queue) => ((backward ? queue[0].timestamp > best[0].timestamp : queue[0].timestamp < best[0].timestamp) ? queue : best)).shift());
  }
  const left = new Map(answers.map((answer, index) => [answer.partition, queues[index]]));
  return { records: backward ? records : records.reverse(), left };
}

const answerOf = (told, partition) => told.answers.find((answer) => answer.partition === partition);

// Where each partition goes on with older records; null where there are none.
export function older(told) {
  const at = [...told.places].map(([partition, place]) => {
    const answer = told.backward && answerOf(told, partition);
    if (!answer) return [partition, place];
    const [next] = told.left.get(partition);
    return [partition, next ? next.offset + 1 : answer.first_offset];
  });
  return at.some(([partition, offset]) => offset > told.starts[partition]) ? at : null;
}

export function newer(told) {
  const at = [...told.places].map(([partition, place]) => {
    const answer = !told.backward && answerOf(told, partition);
    if (!answer) return [partition, place];
    const [next] = told.left.get(partition);
    return [partition, next ? next.offset : answer.next_offset];
  });
  return at.some(([partition, offset]) => offset < told.ends[partition]) ? at : null;
}

export const writeCursor = (at) => at.map((pair) => pair.join(":")).join(",");

export const readCursor = (text) => new Map((text ?? "").split(",").filter(Boolean).map((pair) => pair.split(":").map(Number)));

// The work of many items, some at a time; results in the order of the items.
export async function inTurns(items, most, work) {
  const found = [];
  for (let at = 0; at < items.length; at += most) found.push(...(await Promise.all(items.slice(at, at + most).map(work))));
  return found;
}
