import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Writes java_client.jsonl: record batches as the Java client builds them, with what went into them.
 *
 * Rerun (Java 17 or later; kafka-clients 4.4.0 and what it depends on in the class path):
 *   java -cp "kafka-clients-4.4.0.jar:lz4-java.jar:snappy-java.jar:zstd-jni.jar:slf4j-api.jar" \
 *       GoldenBatches.java > java_client.jsonl
 * Uncompressed batches come out the same each time; compressed ones depend on the libraries.
 */
public class GoldenBatches {
    static final long T = 1_700_000_000_000L;

    /** Bytes, written as the hex of a unit and how often it is repeated. */
    record Blob(String hex, int times) {
        static Blob of(String text) {
            return repeated(text, 1);
        }

        static Blob repeated(String text, int times) {
            return raw(text.getBytes(StandardCharsets.UTF_8), times);
        }

        static Blob raw(byte[] unit, int times) {
            return new Blob(HexFormat.of().formatHex(unit), times);
        }

        byte[] bytes() {
            return HexFormat.of().parseHex(hex.repeat(times));
        }

        static String json(Blob blob) {
            return blob == null ? "null" : "[\"" + blob.hex + "\"," + blob.times + "]";
        }
    }

    record Pair(String name, Blob value) { }

    record Row(long timestamp, Blob key, Blob value, Pair... headers) { }

    record Batch(String name, Compression codec, long producerId, short epoch, int sequence,
                 boolean transactional, TimestampType timestampType, long baseOffset,
                 int leaderEpoch, List<Row> rows) {

        static Batch plain(String name, Row... rows) {
            return compressed(name, Compression.NONE, List.of(rows));
        }

        static Batch compressed(String name, Compression codec, List<Row> rows) {
            return new Batch(name, codec, -1, (short) -1, -1, false, TimestampType.CREATE_TIME, 0, -1, rows);
        }

        byte[] encode() {
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(512), RecordBatch.MAGIC_VALUE_V2, codec, timestampType, baseOffset,
                T + 1_000, producerId, epoch, sequence, transactional, leaderEpoch);
            for (Row row : rows) {
                Header[] headers = new Header[row.headers.length];
                for (int i = 0; i < headers.length; i++) {
                    Pair pair = row.headers[i];
                    headers[i] = new RecordHeader(pair.name, bytes(pair.value));
                }
                builder.append(row.timestamp, bytes(row.key), bytes(row.value), headers);
            }
            ByteBuffer buffer = builder.build().buffer();
            byte[] encoded = new byte[buffer.remaining()];
            buffer.get(encoded);
            return encoded;
        }

        String json() {
            StringJoiner records = new StringJoiner(",", "[", "]");
            for (Row row : rows) {
                StringJoiner headers = new StringJoiner(",", "[", "]");
                for (Pair pair : row.headers) {
                    headers.add("[\"" + pair.name + "\"," + Blob.json(pair.value) + "]");
                }
                records.add("[" + row.timestamp + "," + Blob.json(row.key) + ","
                    + Blob.json(row.value) + "," + headers + "]");
            }
            return "{\"name\":\"" + name + "\",\"codec\":\"" + codec.type().name
                + "\",\"producer_id\":" + producerId + ",\"producer_epoch\":" + epoch
                + ",\"base_sequence\":" + sequence + ",\"transactional\":" + transactional
                + ",\"log_append_time\":"
                + (timestampType == TimestampType.LOG_APPEND_TIME ? T + 1_000 : null)
                + ",\"base_offset\":" + baseOffset + ",\"leader_epoch\":" + leaderEpoch
                + ",\"records\":" + records
                + ",\"batch\":\"" + HexFormat.of().formatHex(encode()) + "\"}";
        }

        static byte[] bytes(Blob blob) {
            return blob == null ? null : blob.bytes();
        }
    }

    /** More than one block of snappy (32 KiB) and of lz4 (64 KiB). */
    static List<Row> severalBlocks() {
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            rows.add(new Row(T + i, Blob.of("key-" + i), Blob.repeated("flight " + i + " departs; ", 250),
                new Pair("n", Blob.of(Integer.toString(i)))));
        }
        return rows;
    }

    static List<Row> small() {
        return List.of(
            new Row(T, Blob.of("k"), Blob.repeated("a", 300)),
            new Row(T + 1, null, Blob.repeated("b", 300), new Pair("h", null)));
    }

    static byte[] everyByte() {
        byte[] bytes = new byte[256];
        for (int i = 0; i < 256; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    static List<Row> many(int count) {
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            rows.add(new Row(T + i * 50L, null, Blob.of("v")));
        }
        return rows;
    }

    public static void main(String[] arguments) {
        Blob none = null;
        List<Batch> batches = new ArrayList<>(List.of(
            Batch.plain("one record", new Row(T, Blob.of("key"), Blob.of("value"))),
            Batch.plain("nulls and empties",
                new Row(T, none, none), new Row(T, Blob.of(""), Blob.of("")),
                new Row(T, none, Blob.of("")), new Row(T, Blob.of(""), none)),
            Batch.plain("headers: duplicate, null, empty, unicode",
                new Row(T, none, Blob.of("v"), new Pair("a", Blob.of("1")), new Pair("a", Blob.of("2")),
                    new Pair("", none), new Pair("e", Blob.of("")),
                    new Pair("Z\u00fcrich \u2708 \ud83d\ude80", Blob.raw(everyByte(), 1))),
                new Row(T, none, Blob.of("w"))),
            Batch.plain("timestamps back and forth",
                new Row(T, none, Blob.of("0")), new Row(T - 86_400_000, none, Blob.of("1")),
                new Row(T + 1_000_000_000_000L, none, Blob.of("2")), new Row(0, none, Blob.of("3")),
                new Row(T + 63, none, Blob.of("4")), new Row(T - 64, none, Blob.of("5")),
                new Row(T + 64, none, Blob.of("6"))),
            Batch.plain("extreme timestamps",
                new Row(0, none, Blob.of("0")), new Row(Long.MAX_VALUE, none, Blob.of("1"))),
            Batch.plain("lengths at the borders of varints",
                new Row(T, Blob.repeated("k", 63), Blob.repeated("v", 64)),
                new Row(T, Blob.repeated("k", 64), Blob.repeated("v", 8191)),
                new Row(T, Blob.repeated("k", 8191), Blob.repeated("v", 8192)),
                new Row(T, Blob.repeated("k", 1), Blob.repeated("v", 40)),
                new Row(T, Blob.repeated("k", 1), Blob.repeated("v", 56)),
                new Row(T, Blob.repeated("k", 1), Blob.repeated("v", 57))),
            Batch.compressed("offsets of two bytes", Compression.NONE, many(130)),
            new Batch("idempotent", Compression.NONE, 4_000_000_000L, (short) 7, 123_456, false,
                TimestampType.CREATE_TIME, 0, -1, small()),
            new Batch("transactional", Compression.NONE, 1, Short.MAX_VALUE, Integer.MAX_VALUE, true,
                TimestampType.CREATE_TIME, 0, -1, small()),
            new Batch("from a log", Compression.NONE, -1, (short) -1, -1, false,
                TimestampType.CREATE_TIME, 1L << 40, 12, small()),
            new Batch("log append time", Compression.NONE, -1, (short) -1, -1, false,
                TimestampType.LOG_APPEND_TIME, 5, 3, small()),
            new Batch("log append time, zstd", Compression.zstd().build(), -1, (short) -1, -1, false,
                TimestampType.LOG_APPEND_TIME, 5, 3, small())));
        List<Compression> codecs = List.of(
            Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(),
            Compression.zstd().build());
        for (Compression codec : codecs) {
            batches.add(Batch.compressed(codec.type().name + " small", codec, small()));
            batches.add(Batch.compressed(codec.type().name + " several blocks", codec, severalBlocks()));
        }
        batches.add(Batch.compressed("gzip level 9", Compression.gzip().level(9).build(), severalBlocks()));
        batches.add(Batch.compressed("lz4 level 17", Compression.lz4().level(17).build(), severalBlocks()));
        batches.add(Batch.compressed("zstd level 22", Compression.zstd().level(22).build(), severalBlocks()));
        batches.add(Batch.compressed("zstd level -5", Compression.zstd().level(-5).build(), severalBlocks()));
        batches.forEach(batch -> System.out.println(batch.json()));
    }
}
