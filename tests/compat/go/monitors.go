// What monitors of groups ask: with sarama as kafka_exporter does it, with franz-go's kadm as kminion and kcl do.
// lag sarama|franz-go BOOTSTRAP: one line of JSON for each fact, in order.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A fact is said in the words of kafka_exporter's series.
type fact map[string]any

func show(facts []fact) {
	lines := []string{}
	for _, each := range facts {
		line, err := json.Marshal(each)
		check(err)
		lines = append(lines, string(line))
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}

// lagOfSarama asks in the versions of Kafka 2.0.0, which is what kafka_exporter takes a cluster for unless it is told.
func lagOfSarama(bootstrap string) (facts []fact) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	client, err := sarama.NewClient([]string{bootstrap}, config)
	check(err)
	defer client.Close()
	facts = append(facts, fact{"brokers": len(client.Brokers())})
	topics, err := client.Topics()
	check(err)
	ends := map[string]map[int32]int64{}
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		check(err)
		facts = append(facts, fact{"topic": topic, "partitions": len(partitions)})
		ends[topic] = map[int32]int64{}
		for _, partition := range partitions {
			leader, err := client.Leader(topic, partition)
			check(err)
			end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
			check(err)
			start, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
			check(err)
			replicas, err := client.Replicas(topic, partition)
			check(err)
			inSync, err := client.InSyncReplicas(topic, partition)
			check(err)
			ends[topic][partition] = end
			if topic == "__consumer_offsets" {
				continue
			}
			facts = append(facts, fact{
				"topic": topic, "partition": partition, "leader": leader.ID(), "current_offset": end, "oldest_offset": start,
				"replicas": len(replicas), "in_sync_replica": len(inSync),
			})
		}
	}
	for _, broker := range client.Brokers() {
		if err := broker.Open(config); err != nil && err != sarama.ErrAlreadyConnected {
			check(err)
		}
		listed, err := broker.ListGroups(&sarama.ListGroupsRequest{})
		check(err)
		names := []string{}
		for name := range listed.Groups {
			names = append(names, name)
		}
		described, err := broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: names})
		check(err)
		for _, group := range described.Groups {
			request := sarama.OffsetFetchRequest{ConsumerGroup: group.GroupId, Version: 4}
			for topic, partitions := range ends {
				for partition := range partitions {
					request.AddPartition(topic, partition)
				}
			}
			assigned := 0
			for _, member := range group.Members {
				assignment, err := member.GetMemberAssignment()
				check(err)
				for _, partitions := range assignment.Topics {
					assigned += len(partitions)
				}
			}
			facts = append(facts, fact{
				"consumergroup": group.GroupId, "members": len(group.Members), "assigned": assigned, "state": group.State,
				"error": group.Err.Error(), "protocol": group.Protocol, "type": group.ProtocolType,
			})
			answer, err := broker.FetchOffset(&request)
			check(err)
			for topic, blocks := range answer.Blocks {
				for partition, block := range blocks {
					if block.Offset == -1 && block.Err == sarama.ErrNoError {
						continue
					}
					facts = append(facts, fact{
						"consumergroup": group.GroupId, "topic": topic, "partition": partition, "error": block.Err.Error(),
						"current_offset": block.Offset, "lag": ends[topic][partition] - block.Offset,
					})
				}
			}
		}
	}
	return facts
}

// lagOfFranz asks in the newest versions that both know.
func lagOfFranz(bootstrap string) (facts []fact) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin := kadm.NewClient(client)
	lags, err := admin.Lag(ctx)
	check(err)
	for _, group := range lags.Sorted() {
		facts = append(facts, fact{
			"consumergroup": group.Group, "state": group.State, "type": group.ProtocolType, "protocol": group.Protocol,
			"members": len(group.Members), "error": fmt.Sprint(group.Error()),
		})
		for _, each := range group.Lag.Sorted() {
			facts = append(facts, fact{
				"consumergroup": group.Group, "topic": each.Topic, "partition": each.Partition,
				"current_offset": each.Commit.At, "end": each.End.Offset, "lag": each.Lag, "has_member": each.Member != nil,
			})
		}
	}
	folders, err := admin.DescribeAllLogDirs(ctx, nil)
	check(err)
	for broker, each := range folders {
		facts = append(facts, fact{"broker": broker, "log_dirs": len(each), "error": fmt.Sprint(each.Error())})
		each.EachPartition(func(partition kadm.DescribedLogDirPartition) {
			if partition.Topic != "__consumer_offsets" {
				facts = append(facts, fact{"topic": partition.Topic, "partition": partition.Partition, "size": partition.Size})
			}
		})
	}
	configs, err := admin.DescribeTopicConfigs(ctx, "logs")
	check(err)
	for _, each := range configs {
		for _, entry := range each.Configs {
			if entry.Key == "cleanup.policy" || entry.Key == "retention.ms" {
				facts = append(facts, fact{"config": entry.Key, "value": entry.MaybeValue(), "source": entry.Source.String()})
			}
		}
	}
	metadata, err := admin.BrokerMetadata(ctx)
	check(err)
	return append(facts, fact{"brokers": len(metadata.Brokers), "controller": metadata.Controller})
}

func lag(library, bootstrap string) {
	if library == "sarama" {
		show(lagOfSarama(bootstrap))
	} else {
		show(lagOfFranz(bootstrap))
	}
}
