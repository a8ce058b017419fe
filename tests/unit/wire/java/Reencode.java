import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads messages with Kafka's own classes and writes them again.
 *
 * One line per message on standard input: name, version and the bytes in hex; one line of hex, or
 * an error, on standard output.
 */
public final class Reencode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            String answer;
            try {
                byte[] data = HexFormat.of().parseHex(parts[2]);
                answer = HexFormat.of().formatHex(again(parts[0], Short.parseShort(parts[1]), data));
            } catch (InvocationTargetException error) {
                answer = "error: " + error.getCause();
            } catch (Exception error) {
                answer = "error: " + error;
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
    }

    private static byte[] again(String name, short version, byte[] data) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.message." + name + "Data");
        Constructor<?> read = type.getConstructor(Readable.class, short.class);
        ByteBuffer buffer = ByteBuffer.wrap(data);
        Message message = (Message) read.newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes left over");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBufferAccessor output = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
        message.write(output, cache, version);
        return output.buffer().array();
    }
}
