// kafkajs at a broker with TLS and SASL: MECHANISM BOOTSTRAP CA USER PASSWORD TOPIC COUNT.
// COUNT records go there and come back in a group; "ok" is the last line.
'use strict'

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const [mechanism, bootstrap, ca, username, password, topic, count] = process.argv.slice(2)
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  ssl: { ca: [fs.readFileSync(ca, 'utf-8')] },
  sasl: { mechanism: mechanism.toLowerCase(), username, password },
})

async function main() {
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const messages = Array.from({ length: Number(count) }, (_, number) => ({ value: String(number) }))
  await producer.send({ topic, messages })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: 'kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = new Set()
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer
      .run({
        eachMessage: async ({ message }) => {
          seen.add(message.value.toString())
          if (seen.size === Number(count)) resolve()
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  console.log('ok')
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
