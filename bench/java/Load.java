import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A steady load over many topics, which ProducerPerformance does not have: round robin, without keys,
 * who is late catches up. Arguments: properties file, topics (with commas), records, records per
 * second, payload file. Prints "warm" when each topic had a record, waits for a line, and prints "done"
 * after the flush.
 */
public final class Load {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(args[0]))) {
            properties.load(reader);
        }
        String[] topics = args[1].split(",");
        long records = Long.parseLong(args[2]);
        double rate = Double.parseDouble(args[3]);
        List<byte[]> values = Files.readAllLines(Path.of(args[4])).stream()
                .map(line -> line.getBytes(StandardCharsets.US_ASCII)).toList();
        AtomicLong failed = new AtomicLong();
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(properties, serializer, serializer)) {
            for (String topic : topics) {
                producer.send(new ProducerRecord<>(topic, values.get(0))).get();
            }
            System.out.println("warm");
            System.in.read();
            long start = System.nanoTime();
            for (long sent = 0; sent < records; ) {
                double elapsed = (System.nanoTime() - start) / 1e9;
                long due = Math.min(records, (long) (elapsed * rate));
                for (; sent < due; sent++) {
                    String topic = topics[(int) (sent % topics.length)];
                    byte[] value = values.get((int) (sent % values.size()));
                    producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                        if (error != null) {
                            failed.incrementAndGet();
                        }
                    });
                }
                LockSupport.parkNanos(1_000_000);
            }
            producer.flush();
            System.out.println("done");
        }
        System.exit(failed.get() == 0 ? 0 : 1);
    }
}
