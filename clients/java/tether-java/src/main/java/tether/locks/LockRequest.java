package tether.locks;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;

/**
 * What to ask for, and how. It is made by {@link TetherLocks}; each method returns a new request,
 * so one may be kept and acquired any number of times, by any threads. Each acquisition is an owner
 * of its own.
 *
 * <p>Without {@link #waitAtMost} or {@link #noWait} a request waits for as long as it takes, also
 * for a server that is away.
 */
public final class LockRequest {
    private final TetherLocks locks;
    private final Ask ask;

    LockRequest(TetherLocks locks, Ask ask) {
        this.locks = locks;
        this.ask = ask;
    }

    private interface Change {
        void of(Ask ask);
    }

    private LockRequest with(Change change) {
        Ask changed = ask.copy();
        change.of(changed);
        return new LockRequest(locks, changed);
    }

    // ---- how ----

    /**
     * A time to wait. When it is over, the request is {@link TakenException}, or {@link
     * UnreachableException} if no server was reached.
     *
     * @param time 0: does not wait
     * @return such a request
     */
    public LockRequest waitAtMost(Duration time) {
        if (time.isNegative()) {
            throw new IllegalArgumentException("a negative time to wait");
        }
        double ms = Millis.of(time);
        return with(to -> to.wait = ms);
    }

    /**
     * Does not wait: granted now, or {@link TakenException}. Where there is no connection, it waits
     * for one attempt to connect.
     *
     * @return such a request
     */
    public LockRequest noWait() {
        return waitAtMost(Duration.ZERO);
    }

    /**
     * Together with other shared holders, and with no other.
     *
     * @return such a request
     */
    public LockRequest shared() {
        return with(to -> to.isShared = true);
    }

    /**
     * The lock ends by itself after that time, whatever the holder does; that is a loss.
     *
     * @param time from the grant
     * @return such a request
     */
    public LockRequest lease(Duration time) {
        double ms = Millis.of(time);
        return with(to -> to.lease = ms);
    }

    /**
     * Held at least for this time, also if it is released before, and if this client ends. Needs a
     * session whose grace is as long.
     *
     * @param time from the grant
     * @return such a request
     */
    public LockRequest atLeast(Duration time) {
        double ms = Millis.of(time);
        return with(to -> to.atLeast = ms);
    }

    /**
     * Granted once this many replicas have acknowledged it. Needs a session.
     *
     * @param replicas how many
     * @return such a request
     */
    public LockRequest acknowledgedBy(int replicas) {
        return with(to -> to.acks = replicas);
    }

    /**
     * As {@link #acknowledgedBy(int)}, and refused if that takes longer.
     *
     * @param replicas how many
     * @param within how long it may take
     * @return such a request
     */
    public LockRequest acknowledgedBy(int replicas, Duration within) {
        double ms = Millis.of(within);
        return with(
                to -> {
                    to.acks = replicas;
                    to.ackTimeout = ms;
                });
    }

    /**
     * The owner's name, instead of one for each acquisition: two of one name are refused ({@link
     * DeadlockException}, or {@link TakenException} without a wait), unless they are {@link
     * #reentrant}.
     *
     * @param name it must not begin with a dot
     * @return such a request
     */
    public LockRequest owner(String name) {
        return with(to -> to.owner = Resp.bytesOf(name));
    }

    /**
     * Granted again at once while the same owner holds the same in the same way. Only the last
     * release counts. Needs {@link #owner}.
     *
     * @return such a request
     */
    public LockRequest reentrant() {
        return with(to -> to.isReentrant = true);
    }

    /**
     * Which task asks, for the server's search for deadlocks. {@link #acquire} and {@link
     * #tryAcquire} take the thread; {@link #acquireAsync} has none unless you say it here. It must
     * be the same for all that one strand of work holds and waits for.
     *
     * @param name of the task
     * @return such a request
     */
    public LockRequest task(String name) {
        return with(to -> to.task = Resp.bytesOf(name));
    }

    /**
     * Only for temporary keys: the server completes the name with a number that counts up ({@link
     * Hold#keys} has it).
     *
     * @return such a request, which never waits
     */
    public LockRequest sequence() {
        if (!ask.isTemporary()) {
            throw new IllegalStateException("only temporary keys are numbered");
        }
        return with(to -> to.isSequence = true);
    }

    // ---- go ----

    /**
     * Asks, and waits for the grant. An interrupted wait leaves neither a place in the queue nor a
     * hold.
     *
     * @return the hold; close it
     * @throws InterruptedException the thread was interrupted while it waited
     * @throws TakenException another has it, or still had it when the time to wait was over
     * @throws TetherException of another kind: see {@link Failure}
     */
    public Hold acquire() throws InterruptedException {
        Ticket ticket = begin();
        try {
            return Futures.get(ticket.granted);
        } catch (InterruptedException interrupted) {
            ticket.giveUp();
            throw interrupted;
        }
    }

    /** As {@link #acquire}; an interrupt does not end the wait, and is kept for later. */
    Hold acquireUninterruptibly() {
        Ticket ticket = begin();
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return Futures.get(ticket.granted);
                } catch (InterruptedException interrupted) {
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private Ticket begin() {
        Ask asked = ask.copy();
        if (asked.task == null) {
            asked.task = "thread-" + Thread.currentThread().getId(); // P-OWNER-5
        }
        return locks.begin(asked);
    }

    /**
     * As {@link #acquire}, with nothing instead of {@link TakenException}.
     *
     * @return the hold, or nothing
     * @throws InterruptedException the thread was interrupted while it waited
     */
    public Optional<Hold> tryAcquire() throws InterruptedException {
        try {
            return Optional.of(acquire());
        } catch (TakenException taken) {
            return Optional.empty();
        }
    }

    /**
     * Asks, and does not block. Cancel the future to give up: that leaves neither a place in the
     * queue nor a hold. If {@code cancel} gives false, the lock was granted before: close the hold.
     * A future that times out, or that you complete yourself, gives up in the same way.
     *
     * @return completes with the hold, or with an exception as {@link #acquire} throws it; on the
     *     client's executor
     */
    public CompletableFuture<Hold> acquireAsync() {
        Ticket ticket = locks.begin(ask);
        CompletableFuture<Hold> outside = new CompletableFuture<>();
        ticket.granted.whenCompleteAsync(
                (hold, error) -> {
                    if (error != null) {
                        outside.completeExceptionally(error);
                    } else if (!outside.complete(hold)) {
                        hold.releaseAsync();
                    }
                },
                locks.executor());
        outside.whenComplete(
                (hold, error) -> {
                    if (!ticket.isGranted(hold)) { // Harmless where the request has ended.
                        ticket.giveUp();
                    }
                });
        return outside;
    }

    /**
     * This request as a {@link Lock}, as {@link TetherLocks#asLock} says; with a lease, for
     * example. {@code tryLock()} and {@code tryLock(time)} have their own times to wait.
     *
     * @return a lock; those of one name and one client count together
     */
    public Lock asLock() {
        String name = String.join(" ", ask.keys.stream().map(Resp::textOf).toList());
        String readers = name + " (read)";
        return ask.isShared
                ? new ThreadLock(this, readers, name, locks.threadHolds())
                : new ThreadLock(this, name, readers, locks.threadHolds());
    }

    @Override
    public String toString() {
        return "LockRequest" + List.copyOf(ask.keys).stream().map(Resp::textOf).toList();
    }
}
