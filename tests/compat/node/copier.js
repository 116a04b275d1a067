// Copies a topic with transactions of kafkajs: node copier.js BOOTSTRAP SOURCE COPY GROUP COUNT.  See drivers/copier.py.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, source, copy, group, count] = process.argv.slice(2)
const retry = { initialRetryTime: 100, retries: 30 }
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
const producer = kafka.producer({ transactionalId: `copier-${group}`, idempotent: true, maxInFlightRequests: 1, retry })
const consumer = kafka.consumer({ groupId: group, readUncommitted: false, sessionTimeout: 10000, retry })
let number = 0

async function transact (messages, topic, partition) {
  const transaction = await producer.transaction()
  const aborts = ++number % 3 === 0
  try {
    await transaction.send({ topic: copy, messages: messages.map(each => ({ value: aborts ? 'aborted' : each.value })) })
    if (aborts) {
      await transaction.abort()
      return false
    }
    const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString()
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition, offset }] }] })
    await transaction.commit()
    return true
  } catch (error) {
    if (transaction.isActive()) await transaction.abort().catch(() => {})
    throw error
  }
}

async function main () {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (let at = 0; at < batch.messages.length;) {
        const messages = batch.messages.slice(at, at + 20)
        if (!await transact(messages, batch.topic, batch.partition)) continue
        at += messages.length
        resolveOffset(messages[messages.length - 1].offset)
        await heartbeat()
      }
    }
  })
  const admin = kafka.admin()
  await admin.connect()
  for (;;) {
    await new Promise(resolve => setTimeout(resolve, 500))
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [source] })
    if (partitions[0].offset === count) process.exit(0)
  }
}
consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) fail(payload.error) })
process.on('unhandledRejection', fail)

function fail (error) {
  console.error(error)
  process.exit(1)
}
main().catch(fail)
