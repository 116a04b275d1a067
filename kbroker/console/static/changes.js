// The forms of the actions.

import { FormError, pairs } from "./manage.js";
import { zone } from "./format.js";

const here = () => `in ${zone(new Date())}`;
const whole = (text) => (text === "" || text === undefined ? null : text);

function moment(text) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) throw new FormError("The time is missing.");
  return at;
}

export const createTopic = (like = null) => ({
  action: "topic.create", title: "Create a topic",
  inputs: [
    { name: "name", label: "Name", required: true },
    { name: "partitions", label: "Partitions", type: "number", min: 1, value: like?.partitions ?? "", hint: "empty: the broker's default" },
    { name: "replicas", label: "Replicas", type: "number", min: 1, value: like?.replicas ?? "", hint: "empty: the broker's default" },
    { name: "settings", label: "Settings", type: "textarea", value: like?.settings ?? "", placeholder: "retention.ms=86400000\ncleanup.policy=compact", hint: "one a line" },
  ],
  read: (typed) => ({ name: typed.name, partitions: whole(typed.partitions), replicas: whole(typed.replicas), settings: pairs(typed.settings) }),
});

export const deleteTopic = (name) => ({ action: "topic.delete", title: `Delete ${name}`, read: () => ({ name }) });

export const addPartitions = (name, now) => ({
  action: "topic.partitions", title: `Add partitions to ${name}`,
  inputs: [{ name: "count", label: "Partitions afterwards", type: "number", min: now + 1, value: String(now + 1), required: true }],
  read: ({ count }) => ({ name, count }),
});

export const moveReplicas = (name, brokers) => ({
  action: "topic.reassign", title: `Move replicas of ${name}`,
  inputs: [
    { name: "brokers", label: "To the brokers", value: brokers.join(","), required: true, hint: "ids with commas; of one partition in the order of preference" },
    { name: "partition", label: "Partition", type: "number", min: 0, hint: "empty: all of them, spread over the brokers" },
    { name: "replicas", label: "Replicas of each", type: "number", min: 1, hint: "empty: as many as now" },
  ],
  read: (typed) => ({ name, brokers: typed.brokers, partition: whole(typed.partition), replicas: whole(typed.replicas) }),
});

export const callOffMoves = (name) => ({ action: "topic.reassign.cancel", title: `Call off the moves of ${name}`, read: () => ({ name }) });

export const electPreferred = (name) => ({ action: "topic.elect", title: `Have preferred replicas lead ${name}`, read: () => ({ name }) });

export const deleteRecords = (name, partition = null) => ({
  action: "topic.truncate", title: partition === null ? `Delete records of ${name}` : `Delete records of ${name}, partition ${partition}`,
  inputs: [
    { name: "where", label: "Which", type: "select", redraws: true, value: "time", options: [["time", "older than a time"], ["offset", "before an offset"], ["all", "all that are there now"]] },
    { name: "offset", label: "Offset", type: "number", min: 0, required: true, shown: (typed) => typed.where === "offset" },
    { name: "time", label: `Time, ${here()}`, type: "datetime-local", required: true, shown: (typed) => typed.where === "time" },
  ],
  read: (typed) => ({ name, partition, where: typed.where, value: typed.where === "time" ? moment(typed.time) : typed.where === "offset" ? typed.offset : null }),
});

// `rows` have the values of now, from which a change starts; `key` is the one to be changed, empty where a person names it.
const setting = (rows, key) => {
  const known = new Map(rows.map((row) => [row.name, row.value ?? ""]));
  let offered = known.get(key) ?? "";
  return [
    {
      name: "key", label: "Setting", required: true, choices: [...known.keys()], value: key, redraws: true,
      took: (typed) => {
        if (typed.value !== offered && typed.value !== "") return;
        offered = known.get(typed.key) ?? "";
        typed.value = offered;
      },
    },
    { name: "unset", label: "back to the default", type: "checkbox", redraws: true },
    { name: "value", label: "Value", value: offered, shown: (typed) => !typed.unset },
  ];
};
const changed = (typed) => (typed.unset ? { unset: [typed.key] } : { set: { [typed.key]: typed.value } });

export const configureTopic = (name, rows, key = "") => ({ action: "topic.configure", title: `Change a setting of ${name}`, inputs: setting(rows, key), read: (typed) => ({ name, ...changed(typed) }) });

export const configureBroker = (nodeId, rows = [], key = "") => ({
  action: "broker.configure", title: "Change a setting of the brokers",
  inputs: [{ name: "whom", label: "Of", type: "select", value: "", options: [["", "all brokers"], [String(nodeId), `broker ${nodeId} alone`]] }, ...setting(rows, key)],
  read: (typed) => ({ name: typed.whom, ...changed(typed) }),
});

export const resetGroup = (id, topics, isShare = false) => ({
  action: isShare ? "share.reset" : "group.reset", title: `Reset offsets of ${id}`,
  inputs: [
    { name: "topic", label: "Topic", type: "select", options: [["", "all that it has committed"], ...topics.map((name) => [name])] },
    { name: "partition", label: "Partition", type: "number", min: 0, hint: "empty: all of them" },
    { name: "where", label: "To", type: "select", redraws: true, value: "earliest", options: [["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset"], ["time", "a time"], ["shift", "so many offsets on, or back"]] },
    { name: "offset", label: "Offset", type: "number", min: 0, required: true, shown: (typed) => typed.where === "offset" },
    { name: "shift", label: "By", type: "number", required: true, placeholder: "-100", shown: (typed) => typed.where === "shift" },
    { name: "time", label: `Time, ${here()}`, type: "datetime-local", required: true, shown: (typed) => typed.where === "time" },
  ],
  read: (typed) => {
    if (typed.partition !== "" && !typed.topic) throw new FormError("A partition takes a topic.");
    return { id, topic: typed.topic, partition: whole(typed.partition), where: typed.where, value: typed.where === "time" ? moment(typed.time) : whole(typed[typed.where]) };
  },
});

export const deleteGroup = (id) => ({ action: "group.delete", title: `Delete ${id}`, read: () => ({ id }) });

export const forgetTopic = (id, topics, isShare = false) => ({
  action: isShare ? "share.forget" : "group.forget", title: `Forget a topic in ${id}`,
  inputs: [{ name: "topic", label: "Topic", type: "select", options: topics.map((name) => [name]) }],
  read: (typed) => ({ id, topic: typed.topic || topics[0] }),
});

export const abortTransaction = (id) => ({ action: "transaction.abort", title: `Abort the transaction of ${id}`, read: () => ({ id }) });

export const setPassword = (name = "") => ({
  action: "user.password", title: name ? `Set the password of ${name}` : "Add a user", secret: "password",
  inputs: [
    { name: "name", label: "Name", value: name, required: true },
    { name: "password", label: "Password", type: "password", required: true },
    { name: "mechanism", label: "Mechanism", type: "select", options: [["SCRAM-SHA-512"], ["SCRAM-SHA-256"]] },
    { name: "iterations", label: "Iterations", type: "number", min: 4096, hint: "empty: 4096" },
  ],
  read: (typed) => ({ name: typed.name, mechanism: typed.mechanism, iterations: whole(typed.iterations) }),
});

export const removeUser = (name, mechanism) => ({ action: "user.remove", title: `Remove ${name}`, read: () => ({ name, mechanism }) });

const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"];

export const addAcl = () => ({
  action: "acl.add", title: "Add an ACL",
  inputs: [
    { name: "principal", label: "Principal", value: "User:", required: true, hint: "User:* is everybody" },
    { name: "permission", label: "Permission", type: "select", options: [["ALLOW", "may"], ["DENY", "may not"]] },
    { name: "operation", label: "Operation", type: "select", options: OPERATIONS.map((each) => [each]) },
    { name: "kind", label: "Of", type: "select", redraws: true, options: [["TOPIC", "topics"], ["GROUP", "groups"], ["CLUSTER", "the cluster"], ["TRANSACTIONAL_ID", "transactional ids"], ["DELEGATION_TOKEN", "delegation tokens"], ["USER", "users"]] },
    { name: "name", label: "Name", required: true, hint: "* is every one", shown: (typed) => typed.kind !== "CLUSTER" },
    { name: "pattern", label: "It is", type: "select", options: [["LITERAL", "the name"], ["PREFIXED", "the beginning of names"]], shown: (typed) => typed.kind !== "CLUSTER" },
    { name: "host", label: "From", value: "*", hint: "an address, * is everywhere" },
  ],
});

export const removeAcl = (row) => ({ action: "acl.remove", title: "Remove an ACL", read: () => row });

const QUOTAS = [["producer_byte_rate", "Bytes produced a second"], ["consumer_byte_rate", "Bytes fetched a second"], ["request_percentage", "Processor, % of one"], ["controller_mutation_rate", "Partitions made or deleted a second"], ["connection_creation_rate", "Connections a second"]];
const OF_ADDRESSES = "connection_creation_rate";

export const changeQuota = (parts = [], known = {}) => ({
  action: "quota.change", title: "Change quotas",
  inputs: [
    ...["user", "client-id", "ip"].map((kind) => {
      const part = parts.find(([each]) => each === kind);
      return { name: kind, label: { user: "User", "client-id": "Client id", ip: "Address" }[kind], value: part ? part[1] ?? "<default>" : "", redraws: kind === "ip", hint: "<default> is each without its own" };
    }),
    ...QUOTAS.map(([name, label]) => ({ name, label, type: "number", min: 0, value: known[name] ?? "", hint: "empty: no quota", shown: (typed) => (name === OF_ADDRESSES) === Boolean(typed.ip) })),
  ],
  read: (typed) => {
    const entity = ["user", "client-id", "ip"].filter((kind) => typed[kind]).map((type) => ({ type, name: typed[type] === "<default>" ? null : typed[type] }));
    const named = QUOTAS.map(([name]) => name).filter((name) => (name === OF_ADDRESSES) === Boolean(typed.ip) && (typed[name] !== "" || name in known));
    return { entity, ...Object.fromEntries(named.map((name) => [name, whole(typed[name])])) };
  },
});
