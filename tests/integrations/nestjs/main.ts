// A microservice of NestJS on Kafka with two messages: one that is answered, one that is an event.  BOOTSTRAP: the broker.
import 'reflect-metadata';
import { Controller, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { EventPattern, MessagePattern, MicroserviceOptions, Payload, Transport } from '@nestjs/microservices';

@Controller()
class Orders {
  @MessagePattern('prices')
  price(@Payload() order: { items: number }): number {
    return order.items * 5;
  }

  @EventPattern('orders')
  order(@Payload() order: { id: number }): void {
    console.log(`order ${order.id}`);
  }
}

@Module({ controllers: [Orders] })
class Application {}

const service = await NestFactory.createMicroservice<MicroserviceOptions>(Application, {
  transport: Transport.KAFKA,
  options: { client: { brokers: [process.env.BOOTSTRAP!] }, consumer: { groupId: 'billing' } },
});
await service.listen();
console.log('the service listens');
