// franz-go and sarama at a broker, with TLS and SASL unless MECHANISM is NONE: LIBRARY MECHANISM BOOTSTRAP CA USER PASSWORD TOPIC COUNT.
// COUNT records go there and come back in a group; "ok" is the last line.
// lag: see monitors.go.  version BOOTSTRAP: the release that franz-go takes the broker for.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	franz "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"
)

const patience = 60 * time.Second

type job struct {
	mechanism, bootstrap, user, password, topic string
	tls                                         *tls.Config
	count                                       int
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value(number int) []byte { return []byte(strconv.Itoa(number)) }

func (j job) franz() {
	var mechanism sasl.Mechanism
	auth := franz.Auth{User: j.user, Pass: j.password}
	switch j.mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: j.user, Pass: j.password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = auth.AsSha256Mechanism()
	default:
		mechanism = auth.AsSha512Mechanism()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(j.bootstrap),
		kgo.ConsumeTopics(j.topic), kgo.ConsumerGroup("franz-go"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if j.mechanism != "NONE" {
		options = append(options, kgo.DialTLSConfig(j.tls), kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for number := 0; number < j.count; number++ {
		check(client.ProduceSync(ctx, &kgo.Record{Topic: j.topic, Value: value(number)}).FirstErr())
	}
	seen := map[string]bool{}
	for len(seen) < j.count {
		fetches := client.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			check(each.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)] = true })
	}
	check(client.CommitUncommittedOffsets(ctx))
}

type exchange struct {
	hash         func() hash.Hash
	conversation *scram.ClientConversation
}

func (e *exchange) Begin(user, password, authorization string) error {
	client, err := scram.HashGeneratorFcn(e.hash).NewClient(user, password, authorization)
	if err == nil {
		e.conversation = client.NewConversation()
	}
	return err
}
func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }
func (e *exchange) Done() bool                            { return e.conversation.Done() }

type reader struct {
	count int
	seen  map[string]bool
	done  context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.seen[string(message.Value)] = true
		session.MarkMessage(message, "")
		if len(r.seen) == r.count {
			session.Commit()
			r.done()
			return nil
		}
	}
	return nil
}

func (j job) sarama() {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	if j.mechanism != "NONE" {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, j.tls
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, j.user, j.password
		config.Net.SASL.Mechanism = sarama.SASLMechanism(j.mechanism)
	}
	if j.mechanism != "PLAIN" && j.mechanism != "NONE" {
		hashes := map[string]func() hash.Hash{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &exchange{hash: hashes[j.mechanism]}
		}
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	producer, err := sarama.NewSyncProducer([]string{j.bootstrap}, config)
	check(err)
	for number := 0; number < j.count; number++ {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: j.topic, Value: sarama.ByteEncoder(value(number))})
		check(err)
	}
	check(producer.Close())
	group, err := sarama.NewConsumerGroup([]string{j.bootstrap}, "sarama", config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := &reader{count: j.count, seen: map[string]bool{}, done: cancel}
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{j.topic}, found))
	}
	check(group.Close())
	if len(found.seen) != j.count {
		check(fmt.Errorf("%d records of %d came", len(found.seen), j.count))
	}
}

// version prints which release the broker looks like, as kcl and kminion tell it.
func version(bootstrap string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	defer client.Close()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "probe", "1"
	answer, err := request.RequestWith(context.Background(), client)
	check(err)
	fmt.Println(kversion.FromApiVersionsResponse(answer).VersionGuess())
}

func main() {
	arguments := os.Args[1:]
	if arguments[0] == "version" {
		version(arguments[1])
		return
	}
	if arguments[0] == "lag" {
		lag(arguments[1], arguments[2])
		return
	}
	roots := x509.NewCertPool()
	if arguments[1] != "NONE" {
		authority, err := os.ReadFile(arguments[3])
		check(err)
		roots.AppendCertsFromPEM(authority)
	}
	count, err := strconv.Atoi(arguments[7])
	check(err)
	it := job{
		mechanism: arguments[1], bootstrap: arguments[2], user: arguments[4], password: arguments[5], topic: arguments[6],
		tls: &tls.Config{RootCAs: roots}, count: count,
	}
	if arguments[0] == "sarama" {
		it.sarama()
	} else {
		it.franz()
	}
	fmt.Println("ok")
}
