import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.BytesDeserializer;
import org.apache.kafka.common.utils.Bytes;

/**
 * Reads topics to their present ends and prints one line per partition: topic, partition, records,
 * key bytes, value bytes, headers, and a SHA-256 over all of it in offset order.
 *
 * Arguments: bootstrap servers, isolation level, seconds, topics.
 */
public final class TopicDigest {
    private final MessageDigest sha = sha256();
    private long records;
    private long keyBytes;
    private long valueBytes;
    private long headers;

    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("isolation.level", args[1]);
        config.put("enable.auto.commit", "false");
        config.put("check.crcs", "true");
        config.put("max.poll.records", "5000");
        long deadline = System.nanoTime() + Duration.ofSeconds(Long.parseLong(args[2])).toNanos();
        try (KafkaConsumer<Bytes, Bytes> consumer =
                new KafkaConsumer<>(config, new BytesDeserializer(), new BytesDeserializer())) {
            for (String topic : List.of(args).subList(3, args.length)) {
                read(consumer, topic, deadline)
                    .forEach((partition, digest) -> System.out.println(digest.line(topic, partition)));
            }
        }
    }

    private static Map<Integer, TopicDigest> read(
            KafkaConsumer<Bytes, Bytes> consumer, String topic, long deadline) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition()))
            .collect(Collectors.toList());
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        Map<Integer, TopicDigest> digests = new TreeMap<>();
        while (!ends.isEmpty()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + ": not at the ends " + ends + " in time");
            }
            for (ConsumerRecord<Bytes, Bytes> record : consumer.poll(Duration.ofMillis(200))) {
                digests.computeIfAbsent(record.partition(), p -> new TopicDigest()).add(record);
            }
            ends.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
        }
        return digests;
    }

    private void add(ConsumerRecord<Bytes, Bytes> record) {
        records++;
        sha.update(ByteBuffer.allocate(16).putLong(record.offset()).putLong(record.timestamp()).array());
        keyBytes += update(record.key() == null ? null : record.key().get());
        valueBytes += update(record.value() == null ? null : record.value().get());
        Header[] all = record.headers().toArray();
        sha.update(ByteBuffer.allocate(4).putInt(all.length).array());
        headers += all.length;
        for (Header header : all) {
            update(header.key().getBytes(StandardCharsets.UTF_8));
            update(header.value());
        }
    }

    private int update(byte[] part) {
        sha.update(ByteBuffer.allocate(4).putInt(part == null ? -1 : part.length).array());
        if (part == null) {
            return 0;
        }
        sha.update(part);
        return part.length;
    }

    private String line(String topic, int partition) {
        StringBuilder hex = new StringBuilder();
        for (byte b : sha.digest()) {
            hex.append(String.format("%02x", b));
        }
        return String.join("\t", topic, String.valueOf(partition), String.valueOf(records),
            String.valueOf(keyBytes), String.valueOf(valueBytes), String.valueOf(headers), hex);
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
