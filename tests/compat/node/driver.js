// kafkajs behind the line protocol of tests/compat/client.py.
'use strict'

const readline = require('node:readline')
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.argv[2]],
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => process.stderr.write(JSON.stringify(log) + '\n'),
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 30 },
})

const emit = (event, values = {}) => process.stdout.write(JSON.stringify({ event, ...values }) + '\n')
const encode = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
const decode = text => (text === null ? null : Buffer.from(text, 'base64'))

function headersOut(headers) {
  const found = []
  for (const [name, value] of Object.entries(headers || {})) {
    for (const one of Array.isArray(value) ? value : [value]) found.push([name, encode(one)])
  }
  return found
}

function headersIn(headers) {
  const made = {}
  for (const [name, value] of headers) {
    const data = decode(value)
    if (name in made) made[name] = [].concat(made[name], [data])
    else made[name] = data
  }
  return made
}

const line = (partition, message) => ({
  partition,
  offset: Number(message.offset),
  key: encode(message.key),
  value: encode(message.value),
  headers: headersOut(message.headers),
  timestamp: Number(message.timestamp),
})

const producers = new Map()
let member = null
let positions = new Map()
let memberTopic = null

const operations = {
  async produce({ topic, codec, records, idempotent }) {
    const kind = idempotent ? 'idempotent' : 'plain'
    if (!producers.has(kind)) {
      const made = kafka.producer({ idempotent: Boolean(idempotent), maxInFlightRequests: idempotent ? 1 : undefined })
      await made.connect()
      producers.set(kind, made)
    }
    const answers = await producers.get(kind).send({
      topic,
      acks: -1,
      compression: codecs[codec],
      messages: records.map(record => ({
        partition: record.partition,
        key: decode(record.key),
        value: decode(record.value),
        headers: headersIn(record.headers),
        timestamp: String(record.timestamp),
      })),
    })
    const next = new Map()
    for (const answer of answers) {
      if (answer.errorCode !== 0) throw new Error(`produce answered error ${answer.errorCode}`)
      next.set(answer.partition, Number(answer.baseOffset))
    }
    return records.map(record => {
      const at = next.get(record.partition)
      next.set(record.partition, at + 1)
      return at
    })
  },

  async read({ topic, ends }) {
    const left = new Map(Object.entries(ends).map(([partition, end]) => [Number(partition), end]))
    const found = []
    const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}`, maxWaitTimeInMs: 100 })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          found.push(line(partition, message))
          if (Number(message.offset) + 1 >= (left.get(partition) ?? Infinity)) left.delete(partition)
          if (left.size === 0) resolve()
        },
      }).catch(reject)
    })
    await consumer.disconnect()
    return found
  },

  async join({ topic, group, session_ms, heartbeat_ms }) {
    memberTopic = topic
    member = kafka.consumer({
      groupId: group,
      sessionTimeout: session_ms,
      rebalanceTimeout: 30000,
      heartbeatInterval: heartbeat_ms,
      maxWaitTimeInMs: 100,
      retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 30 },
    })
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      positions = new Map()
      emit('assigned', { partitions: payload.memberAssignment[topic] || [] })
    })
    member.on(member.events.REBALANCING, () => {
      positions = new Map()
      emit('assigned', { partitions: [] })
    })
    await member.connect()
    await member.subscribe({ topic, fromBeginning: true })
    member.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 3,
      eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
        for (const message of batch.messages) {
          if (!isRunning() || isStale()) break
          resolveOffset(message.offset)
          positions.set(batch.partition, Number(message.offset) + 1)
          emit('record', line(batch.partition, message))
        }
        await heartbeat()
      },
    }).catch(error => emit('error', { text: `run: ${error}` }))
  },

  async commit() {
    const offsets = [...positions].map(([partition, at]) => ({ topic: memberTopic, partition, offset: String(at) }))
    if (offsets.length) await member.commitOffsets(offsets)
  },

  async leave() {
    await member.disconnect()
    member = null
  },
}

async function main() {
  await zstd.init()
  const lines = readline.createInterface({ input: process.stdin })
  let chain = Promise.resolve()
  lines.on('line', text => {
    chain = chain.then(async () => {
      const command = JSON.parse(text)
      if (command.op === 'quit') process.exit(0)
      try {
        emit('done', { result: (await operations[command.op](command)) ?? null })
      } catch (error) {
        emit('error', { text: `${command.op}: ${error.stack || error}` })
      }
    })
  })
  lines.on('close', () => chain.then(() => process.exit(0)))
}

main()
