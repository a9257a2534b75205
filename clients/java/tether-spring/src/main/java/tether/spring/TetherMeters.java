package tether.spring;

import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import tether.locks.Failure;
import tether.locks.TetherObserver;

/**
 * Meters: {@code tether.wait} (a timer of grants), {@code tether.held} (a gauge), {@code
 * tether.refused} (by {@code failure}) and {@code tether.lost} (by {@code reason}). Names of locks
 * are no tags: there may be any number of them.
 */
final class TetherMeters implements TetherObserver {
    private final MeterRegistry registry;
    private final AtomicInteger held;

    TetherMeters(MeterRegistry registry) {
        this.registry = registry;
        held = registry.gauge("tether.held", new AtomicInteger());
    }

    @Override
    public void granted(List<String> keys, long token, Duration waited) {
        held.incrementAndGet();
        registry.timer("tether.wait").record(waited);
    }

    @Override
    public void refused(List<String> keys, Failure failure) {
        registry.counter("tether.refused", "failure", failure.name().toLowerCase(Locale.ROOT))
                .increment();
    }

    @Override
    public void lost(List<String> keys, long token, String reason) {
        held.decrementAndGet();
        registry.counter("tether.lost", "reason", reason).increment();
    }

    @Override
    public void released(List<String> keys, long token) {
        held.decrementAndGet();
    }
}
