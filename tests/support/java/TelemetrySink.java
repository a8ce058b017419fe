import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ScopeMetrics;

/**
 * A broker's plugin for client telemetry: appends what clients push to the file that the system
 * property `telemetry.sink` names, a line per value:
 *
 *     client instance id, terminating, content type, metric, gauge|delta|cumulative, value
 *
 * separated by tabs. The messages are decoded with OpenTelemetry's own classes.
 */
public class TelemetrySink implements MetricsReporter, ClientTelemetry {

    private static final Path SINK = Path.of(System.getProperty("telemetry.sink"));

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            String client = payload.clientInstanceId() + "\t" + payload.isTerminating() + "\t"
                + payload.contentType() + "\t";
            StringBuilder lines = new StringBuilder();
            for (ResourceMetrics resource : parsed(payload.data()).getResourceMetricsList())
                for (ScopeMetrics scope : resource.getScopeMetricsList())
                    for (Metric metric : scope.getMetricsList())
                        for (NumberDataPoint point : points(metric))
                            lines.append(client).append(metric.getName()).append('\t')
                                .append(kind(metric)).append('\t')
                                .append(point.getAsDouble()).append('\n');
            append(lines.toString());
        };
    }

    private static MetricsData parsed(ByteBuffer data) {
        try {
            return MetricsData.parseFrom(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static List<NumberDataPoint> points(Metric metric) {
        return metric.hasSum()
            ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
    }

    private static String kind(Metric metric) {
        if (!metric.hasSum())
            return "gauge";
        return switch (metric.getSum().getAggregationTemporality()) {
            case AGGREGATION_TEMPORALITY_DELTA -> "delta";
            case AGGREGATION_TEMPORALITY_CUMULATIVE -> "cumulative";
            default -> "?";
        };
    }

    private static synchronized void append(String lines) {
        try {
            Files.writeString(SINK, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) { }

    @Override
    public void metricChange(KafkaMetric metric) { }

    @Override
    public void metricRemoval(KafkaMetric metric) { }

    @Override
    public void close() { }

    @Override
    public void configure(Map<String, ?> configs) { }
}
