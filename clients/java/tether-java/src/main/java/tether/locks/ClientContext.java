package tether.locks;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What all parts of a client share: the clock, and where the user's code runs (never in the loop's
 * thread).
 */
final class ClientContext {
    private static final Logger LOG = LoggerFactory.getLogger(ClientContext.class);
    private static final long MOMENT_MS = 100;

    final Clock clock;
    final Executor executor;
    private final TetherObserver observer;
    private final Executor inTurn;

    private final Set<CompletableFuture<Void>> telling = ConcurrentHashMap.newKeySet();

    /** What to call when the client is closed: for holds whose release has no answer yet. */
    private final Set<Runnable> atClose = ConcurrentHashMap.newKeySet();

    /** {@code executor}: null for threads of the client's own. */
    ClientContext(Clock clock, Executor executor, TetherObserver observer) {
        Executor threads = SureExecutor.newThreads();
        this.clock = clock;
        this.executor = new SureExecutor(executor == null ? threads : executor, threads);
        this.observer = observer;
        inTurn = inTurn(this.executor);
    }

    void atClose(Runnable action) {
        atClose.add(action);
    }

    void notAtClose(Runnable action) {
        atClose.remove(action);
    }

    void closed() {
        atClose.forEach(Runnable::run);
    }

    /** Tells a holder that it lost something. */
    void tell(Executor where, Runnable action) {
        CompletableFuture<Void> told = new CompletableFuture<>();
        telling.add(told);
        told.whenComplete((nothing, error) -> telling.remove(told));
        new SureExecutor(where, executor)
                .execute(
                        () -> {
                            try {
                                action.run();
                            } finally {
                                told.complete(null);
                            }
                        });
    }

    /**
     * Runs this once all holders have been told, or after a moment: one that does not return must
     * not keep the others' locks.
     */
    void whenTold(Runnable action) {
        CompletableFuture.allOf(telling.toArray(CompletableFuture[]::new))
                .completeOnTimeout(null, MOMENT_MS, TimeUnit.MILLISECONDS)
                .thenRun(action);
    }

    void observe(Consumer<TetherObserver> what) {
        if (observer != null) {
            inTurn.execute(() -> what.accept(observer));
        }
    }

    /** The same stage, whose dependents run on the executor. */
    <T> CompletableFuture<T> outside(CompletableFuture<T> inside) {
        CompletableFuture<T> outside = new CompletableFuture<>();
        inside.whenCompleteAsync(
                (value, error) -> {
                    if (error == null) {
                        outside.complete(value);
                    } else {
                        outside.completeExceptionally(error);
                    }
                },
                executor);
        return outside;
    }

    /** Runs one thing after the other on this executor. */
    static Executor inTurn(Executor executor) {
        return new InTurn(executor);
    }

    private static final class InTurn implements Executor {
        private final Executor executor;
        private final ReentrantLock lock = new ReentrantLock();
        private final Queue<Runnable> queue = new ArrayDeque<>();
        private boolean isRunning;

        InTurn(Executor executor) {
            this.executor = executor;
        }

        @Override
        public void execute(Runnable task) {
            lock.lock();
            try {
                queue.add(task);
                if (isRunning) {
                    return;
                }
                isRunning = true;
            } finally {
                lock.unlock();
            }
            executor.execute(this::runAll);
        }

        private void runAll() {
            for (Runnable task = next(); task != null; task = next()) {
                try {
                    task.run();
                } catch (RuntimeException | Error error) {
                    LOG.error("a callback failed", error);
                }
            }
        }

        private Runnable next() {
            lock.lock();
            try {
                Runnable task = queue.poll();
                isRunning = task != null;
                return task;
            } finally {
                lock.unlock();
            }
        }
    }
}
