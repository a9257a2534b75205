package tether.locks;

import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Locks that live as long as the connection that holds them. One object serves a whole program: any
 * number of threads, over breaks and restarts, on one connection, which it makes when it is first
 * needed.
 *
 * <pre>{@code
 * try (TetherLocks locks = TetherLocks.builder("redis://localhost").build();
 *         Hold hold = locks.lock("report").waitAtMost(Duration.ofSeconds(5)).acquire()) {
 *     hold.check(); // before each step
 * }
 * }</pre>
 */
public final class TetherLocks implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(TetherLocks.class);
    private static final long CLOSE_WITHIN_MS = 5000;

    private final ClientContext context;
    private final Cluster cluster;
    private final ThreadHolds threadHolds = new ThreadHolds();

    TetherLocks(ClientContext context, Cluster cluster) {
        this.context = context;
        this.cluster = cluster;
    }

    /**
     * Begins a client.
     *
     * @param uri {@code redis://user:password@host:port/database}, {@code rediss://} for TLS, or
     *     {@code unix:///path}
     * @return sets it up
     */
    public static TetherLocksBuilder builder(String uri) {
        return new TetherLocksBuilder(uri);
    }

    // ---- locks ----

    /**
     * A lock of this name.
     *
     * @param name its key
     * @return says how to acquire it
     */
    public LockRequest lock(String name) {
        return request(List.of(name));
    }

    /**
     * One permit of a semaphore. All that ask for it must say the same total.
     *
     * @param name its key
     * @param total how many permits it has
     * @return says how to acquire it
     */
    public LockRequest semaphore(String name, int total) {
        return semaphore(name, 1, total);
    }

    /**
     * Some permits of a semaphore. All that ask for it must say the same total.
     *
     * @param name its key
     * @param permits how many of them
     * @param total how many permits it has
     * @return says how to acquire them
     */
    public LockRequest semaphore(String name, int permits, int total) {
        if (permits < 1 || permits > total) {
            throw new IllegalArgumentException("permits must be between 1 and " + total);
        }
        Ask ask = new Ask(List.of(Resp.bytesOf(name)));
        ask.permits = permits;
        ask.permitsOf = total;
        return new LockRequest(this, ask);
    }

    /**
     * Several locks at once: all of them or none, with one token.
     *
     * @param names their keys, each once
     * @return says how to acquire them
     */
    public LockRequest all(String... names) {
        return request(List.of(names));
    }

    /**
     * A temporary key: a string that anybody can read, which lives as long as its hold. In this
     * client, one request at a time can have it.
     *
     * @param name its key
     * @param value its value
     * @return says how to make it
     */
    public LockRequest temporaryKey(String name, String value) {
        Ask ask = new Ask(List.of(Resp.bytesOf(name)));
        ask.temporary = Resp.bytesOf(value);
        return new LockRequest(this, ask);
    }

    private LockRequest request(List<String> names) {
        return new LockRequest(this, new Ask(names.stream().map(Resp::bytesOf).toList()));
    }

    Ticket begin(Ask ask) {
        Ticket ticket = new Ticket(context, cluster, ask);
        ticket.begin();
        return ticket;
    }

    ThreadHolds threadHolds() {
        return threadHolds;
    }

    Executor executor() {
        return context.executor;
    }

    // ---- locks of java.util.concurrent ----

    /**
     * This lock as a {@link Lock}: re-entrant, owned by the thread.
     *
     * <p>{@code lock()} waits for as long as it takes. {@code unlock()} throws {@link
     * IllegalMonitorStateException} in a thread that does not hold the lock; the last {@code
     * unlock()} throws {@link LostException} if the lock was lost meanwhile, and the thread holds
     * it no more. To take a lock again that was lost, before it is unlocked, throws {@link
     * LostException}, too. {@code newCondition()} is not supported.
     *
     * @param name its key
     * @return a lock; those of one name and one client count together
     */
    public Lock asLock(String name) {
        return lock(name).asLock();
    }

    /**
     * This lock as a {@link ReadWriteLock}, whose locks are as {@link #asLock} says. A thread that
     * holds one of the two cannot take the other: that is {@link DeadlockException}, or false from
     * {@code tryLock()}.
     *
     * @param name its key
     * @return a pair of locks
     */
    public ReadWriteLock asReadWriteLock(String name) {
        Lock write = lock(name).asLock();
        Lock read = lock(name).shared().asLock();
        return new ReadWriteLock() {
            @Override
            public Lock readLock() {
                return read;
            }

            @Override
            public Lock writeLock() {
                return write;
            }
        };
    }

    /**
     * The hold of this thread by {@link #asLock}, for its token and its checks.
     *
     * @param name the lock's key
     * @return the hold, or nothing if this thread has none
     */
    public Optional<Hold> heldByThread(String name) {
        return threadHolds.get(name);
    }

    // ---- watches, presence, elections ----

    /**
     * Tells whether these keys exist, and then each time one of them is made or deleted, by
     * whomever.
     *
     * @param keys their names
     * @param listener is called for one event after the other, on the client's executor. If it is
     *     slow, changes that cancel each other may be left out; the last state of each key is not.
     * @return ends it
     */
    public Subscription watch(Collection<String> keys, Consumer<? super KeyEvent> listener) {
        List<String> names = keys.stream().map(Resp::bytesOf).toList();
        return new Watcher.OfKeys(context, cluster, names, Objects.requireNonNull(listener))
                .begin();
    }

    /**
     * Tells the temporary keys under a prefix, and then each that comes, changes or goes.
     *
     * @param prefix of their names
     * @param listener is called as by {@link #watch}
     * @return ends it
     */
    public Subscription presence(String prefix, Consumer<? super MemberEvent> listener) {
        return new Watcher.OfPrefix(
                        context, cluster, Resp.bytesOf(prefix), Objects.requireNonNull(listener))
                .begin();
    }

    /**
     * Stands as a candidate, until it is closed.
     *
     * @param name of the election
     * @param value what observers are told of this candidate while it leads, such as where it is
     * @return says when it leads
     */
    public Candidate elect(String name, String value) {
        Ask ask = new Ask(List.of(Resp.bytesOf(name)));
        ask.temporary = Resp.bytesOf(value);
        ask.isElection = true;
        return new Candidate(context, cluster, ask);
    }

    /**
     * Tells who leads in an election (or that nobody does), and then each change.
     *
     * @param name of the election
     * @param listener is called as by {@link #watch}
     * @return ends it
     */
    public Subscription observe(String name, Consumer<? super Optional<Leader>> listener) {
        return new Watcher.OfElection(
                        context, cluster, Resp.bytesOf(name), Objects.requireNonNull(listener))
                .begin();
    }

    // ---- its end ----

    /**
     * Tells all holders that their locks are lost ({@code closed}), ends all requests, and frees
     * everything at the server, which it waits for for two seconds at most.
     */
    @Override
    public void close() {
        CompletableFuture<Void> closed = cluster.close();
        try {
            closed.get(CLOSE_WITHIN_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException | ExecutionException error) {
            LOG.warn("the server did not confirm that the client was closed");
        }
    }
}
