package tether.locks;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Runs each task once, in another thread, also if the user's executor refuses it, as one does that
 * is full or was shut down: what waits for the task would wait for ever.
 */
final class SureExecutor implements Executor {
    private static final Logger LOG = LoggerFactory.getLogger(SureExecutor.class);
    private static final long MOMENT_MS = 100;

    private final Executor executor;
    private final Executor spare;

    /** {@code spare}: runs what the other one refuses. */
    SureExecutor(Executor executor, Executor spare) {
        this.executor = executor;
        this.spare = spare;
    }

    /** A thread for each task that runs, kept for a minute. */
    static Executor newThreads() {
        return Executors.newCachedThreadPool(
                run -> {
                    Thread thread = new Thread(run, "tether-callback");
                    thread.setDaemon(true);
                    return thread;
                });
    }

    @Override
    public void execute(Runnable task) {
        Once once = new Once(task, new AtomicBoolean());
        try {
            executor.execute(once);
        } catch (RuntimeException | Error error) {
            if (once.hasBegun.get()) { // An executor may run it in this thread.
                LOG.error("a callback failed", error);
            } else {
                LOG.warn(
                        "an executor refuses a callback, which runs elsewhere: {}",
                        error.toString());
                executeBySpare(once);
            }
        }
    }

    /** Again in a moment if there is no memory for a thread. */
    private void executeBySpare(Once once) {
        try {
            spare.execute(once);
        } catch (RuntimeException | Error error) {
            LOG.error("no thread for a callback", error);
            CompletableFuture.delayedExecutor(MOMENT_MS, TimeUnit.MILLISECONDS, Runnable::run)
                    .execute(() -> executeBySpare(once));
        }
    }

    /** An executor may fail after it has begun the task, or taken it. */
    private record Once(Runnable task, AtomicBoolean hasBegun) implements Runnable {
        @Override
        public void run() {
            if (hasBegun.compareAndSet(false, true)) {
                task.run();
            }
        }
    }
}
