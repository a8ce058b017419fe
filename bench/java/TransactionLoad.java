import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records in transactions of a given size, or without, twice: to warm up, and measured.
 *
 * Arguments: bootstrap servers, topic, transactional id, records, records per transaction (0: no
 * transactions), bytes per record, linger in ms, batch size, "flush" to flush before each commit.
 * Prints the seconds, the seconds of CPU and, in ms, how long each commit took.
 */
public final class TransactionLoad {
    public static void main(String[] args) {
        long records = Long.parseLong(args[3]);
        int perTransaction = Integer.parseInt(args[4]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("linger.ms", args[6]);
        properties.put("batch.size", args[7]);
        if (perTransaction > 0) {
            properties.put("transactional.id", args[2]);
        }
        byte[] value = new byte[Integer.parseInt(args[5])];
        Arrays.fill(value, (byte) 'x');
        boolean flush = args[8].equals("flush");
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(properties, serializer, serializer)) {
            if (perTransaction > 0) {
                producer.initTransactions();
            }
            send(producer, args[1], value, records, perTransaction, flush);
            long cpu = cpuNanos();
            long began = System.nanoTime();
            double[] commits = send(producer, args[1], value, records, perTransaction, flush);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println(seconds + " " + (cpuNanos() - cpu) / 1e9);
            System.out.println(Arrays.stream(commits).mapToObj(Double::toString)
                .collect(Collectors.joining(" ")));
        }
    }

    private static double[] send(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value,
            long records, int perTransaction, boolean flush) {
        if (perTransaction == 0) {
            for (long sent = 0; sent < records; sent++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.flush();
            return new double[0];
        }
        double[] commits = new double[(int) (records / perTransaction)];
        for (int number = 0; number < commits.length; number++) {
            producer.beginTransaction();
            for (int sent = 0; sent < perTransaction; sent++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            if (flush) {
                producer.flush();
            }
            long began = System.nanoTime();
            producer.commitTransaction();
            commits[number] = (System.nanoTime() - began) / 1e6;
        }
        return commits;
    }

    private static long cpuNanos() {
        var system = java.lang.management.ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime();
    }
}
