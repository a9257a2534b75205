package tether.locks;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * A lock (or several, or a temporary key) that was granted. It ends with {@link #close}; it may be
 * lost before, which {@link #check}, {@link #onLost} and {@link #close} say.
 *
 * <p>Any thread may use it, also one that did not acquire it.
 */
public final class Hold implements AutoCloseable {
    private final ClientContext context;
    private final Node node;
    private final RequestListener id;
    private final Request request;
    private final long token;
    private final List<String> keys;
    private final ReentrantLock lock = new ReentrantLock();
    private final List<Runnable> onLost = new ArrayList<>();
    private final List<CompletableFuture<Void>> extending = new ArrayList<>();
    private final List<CompletableFuture<Void>> checking = new ArrayList<>();
    private final CompletableFuture<Void> released = new CompletableFuture<>();

    /** The end of the session, or of the connection, frees what is being released. */
    private final Runnable clientClosed = () -> released.complete(null);

    private volatile String loss;
    private volatile boolean isReleased;

    /** {@code key}: the name that the server made, or null. */
    Hold(
            ClientContext context,
            Node node,
            RequestListener id,
            Request request,
            long token,
            String key) {
        this.context = context;
        this.node = node;
        this.id = id;
        this.request = request;
        this.token = token;
        keys = (key == null ? request.ask.keys : List.of(key)).stream().map(Resp::textOf).toList();
    }

    // ---- what it is ----

    /**
     * The token of this grant: greater than that of each earlier holder. Send it with each write to
     * what the lock protects, and let that refuse smaller ones.
     *
     * @return a number of up to 2^53
     */
    public long token() {
        return token;
    }

    /**
     * The names of what is held.
     *
     * @return one name, several of a request for several locks, or the name that the server made
     *     for a sequence
     */
    public List<String> keys() {
        return keys;
    }

    // ---- is it still held? ----

    /**
     * Makes sure that the lock is still held at this moment. It reads the clocks, asks nobody and
     * does not wait, so call it before each step of the work.
     *
     * @throws LostException the lock was lost
     * @throws IllegalStateException the lock was released
     */
    public void check() {
        if (isReleased) {
            throw new IllegalStateException("the lock was released");
        }
        String reason = reason();
        if (reason != null) {
            throw new LostException(reason);
        }
    }

    /**
     * Whether the lock is held at this moment, as {@link #check} would say.
     *
     * @return false once it was lost or released
     */
    public boolean isHeld() {
        return !isReleased && reason() == null;
    }

    /**
     * Whether {@link #close} or {@link #releaseAsync} was called.
     *
     * @return true from the call on, whatever comes of it
     */
    public boolean isReleased() {
        return isReleased;
    }

    /**
     * Why the lock was lost.
     *
     * @return the reason (see {@link LostException#reason}), or nothing if it was not lost
     */
    public Optional<String> loss() {
        return Optional.ofNullable(isReleased ? loss : reason());
    }

    private String reason() {
        Link.Fence fence =
                node.core.link.fence; // First: a loss is told before there is another fence.
        String told = loss;
        return told != null ? told : node.core.check(request, fence, context.clock.now());
    }

    /**
     * Calls this once when the lock is lost, on the client's executor; at once if it was lost
     * already.
     *
     * @param action is given the reason (see {@link LostException#reason})
     */
    public void onLost(Consumer<? super String> action) {
        onLost(action, context.executor);
    }

    /**
     * As {@link #onLost(Consumer)}, on this executor.
     *
     * @param action is given the reason
     * @param executor runs it
     */
    public void onLost(Consumer<? super String> action, Executor executor) {
        Objects.requireNonNull(action);
        Runnable run = () -> context.tell(executor, () -> action.accept(loss));
        lock.lock();
        try {
            if (loss == null) {
                onLost.add(run);
                return;
            }
        } finally {
            lock.unlock();
        }
        run.run();
    }

    // ---- leases ----

    /**
     * Lets the lock end this long after now, whatever it had before, and waits for the server's
     * answer.
     *
     * @param lease from now on
     * @throws LostException the lock was lost
     * @throws TetherException the server refused; the hold stays as it was
     * @throws InterruptedException the thread was interrupted; the extension may be carried out all
     *     the same
     */
    public void extend(Duration lease) throws InterruptedException {
        Futures.get(extension(Millis.of(lease), null));
    }

    /**
     * As {@link #extend}, without waiting.
     *
     * @param lease from now on
     * @return completes with the server's answer; with {@link LostException} if the lock is lost or
     *     released before that
     */
    public CompletionStage<Void> extendAsync(Duration lease) {
        return context.outside(extension(Millis.of(lease), null));
    }

    /**
     * As {@link #extend(Duration)}, and from now on the lock is held at least for that time,
     * instead of what {@link LockRequest#atLeast} said. Needs a session whose grace is as long.
     *
     * @param lease from now on
     * @param atLeast from now on; 0: the lock is free when it is released
     * @throws LostException the lock was lost
     * @throws TetherException the server refused, or there is no such session; the hold stays as it
     *     was
     * @throws InterruptedException the thread was interrupted; the extension may be carried out all
     *     the same
     */
    public void extend(Duration lease, Duration atLeast) throws InterruptedException {
        Futures.get(extension(lease, atLeast));
    }

    /**
     * As {@link #extend(Duration, Duration)}, without waiting.
     *
     * @param lease from now on
     * @param atLeast from now on; 0: the lock is free when it is released
     * @return as {@link #extendAsync(Duration)} says
     */
    public CompletionStage<Void> extendAsync(Duration lease, Duration atLeast) {
        CompletableFuture<Void> answer = extension(lease, atLeast);
        return answer.isDone() ? answer : context.outside(answer);
    }

    private CompletableFuture<Void> extension(Duration lease, Duration atLeast) {
        double kept = Millis.of(atLeast);
        return node.core.settings.mayKeep(kept)
                ? extension(Millis.of(lease), kept)
                : CompletableFuture.failedFuture(TetherException.of(Problem.UNKEPT));
    }

    private CompletableFuture<Void> extension(double lease, Double atLeast) {
        return ask(extending, () -> post(core -> core.requests.extend(id, lease, atLeast)));
    }

    // ---- guarded writes ----

    /**
     * Runs a command on your connection for data, which must lead to the same server: only while
     * the server knows this lock as held ({@code LOCK.GUARD}). It is sent once.
     *
     * @param data sends it
     * @param command its words, such as {@code "SET", "page", "new"}
     * @return the command's reply
     * @throws LostException the lock was lost, and the command was not run
     * @throws Exception what the connection for data throws; the command may have been run
     */
    public Object run(DataConnection data, String... command) throws Exception {
        check();
        List<byte[]> words = new ArrayList<>(List.of(bytes("LOCK.GUARD"), bytes(keys.get(0))));
        words.add(bytes(Long.toString(token)));
        for (String word : command) {
            words.add(bytes(word));
        }
        try {
            return data.send(words);
        } catch (Exception error) {
            if (isStale(error)) {
                String known = reason();
                throw new LostException(known == null ? "stale" : known);
            }
            throw error;
        }
    }

    private static boolean isStale(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause.getMessage() != null && cause.getMessage().startsWith("STALE")) {
                return true;
            }
        }
        return false;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /**
     * Asks the server whether the lock is still held, and waits for the answer.
     *
     * @throws LostException it is not
     * @throws TetherException the server refused to say
     * @throws InterruptedException the thread was interrupted
     */
    public void checkServer() throws InterruptedException {
        Futures.get(serversCheck());
    }

    /**
     * As {@link #checkServer}, without waiting.
     *
     * @return completes with the server's answer
     */
    public CompletionStage<Void> checkServerAsync() {
        return context.outside(serversCheck());
    }

    private CompletableFuture<Void> serversCheck() {
        check();
        return ask(checking, () -> post(core -> core.requests.checkServer(id)));
    }

    /**
     * A call that the core answers with an event. The loop's thread completes it, so a thread of
     * the user's executor may wait for it, even the only one.
     */
    private CompletableFuture<Void> ask(List<CompletableFuture<Void>> open, Runnable call) {
        CompletableFuture<Void> answer = new CompletableFuture<>();
        lock.lock();
        try {
            if (loss != null) {
                answer.completeExceptionally(new LostException(loss));
            } else if (isReleased) {
                answer.completeExceptionally(new IllegalStateException("the lock was released"));
            } else {
                open.add(answer);
                call.run();
            }
        } finally {
            lock.unlock();
        }
        return answer;
    }

    // ---- its end ----

    /**
     * Releases the lock, and waits for the server's first answer. The release is carried out in any
     * case, also if the thread is interrupted (which ends only the waiting) or the connection
     * breaks. A second call does nothing.
     *
     * @throws LostException the lock was lost before: the work was not protected to its end
     * @throws TetherException the server refuses for good; the client goes on releasing
     */
    @Override
    public void close() {
        if (release()) {
            awaitReleased();
        }
    }

    void awaitReleased() {
        try {
            released.get();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException error) {
            throw Futures.unwrapped(error);
        }
    }

    /**
     * As {@link #close}, without waiting.
     *
     * @return completes with the server's first answer
     */
    public CompletionStage<Void> releaseAsync() {
        release();
        return context.outside(released);
    }

    /** Whether this is the first call. */
    boolean release() {
        lock.lock();
        try {
            if (isReleased) {
                return false;
            }
            isReleased = true;
            if (loss != null) {
                released.completeExceptionally(new LostException(loss));
            } else {
                context.atClose(clientClosed);
                post(core -> core.release(id));
            }
            return true;
        } finally {
            lock.unlock();
        }
    }

    /** Of a candidate, only this term: the next one goes by the same id. */
    private void post(Consumer<Core> call) {
        node.post(
                core -> {
                    Request now = core.requests.find(id);
                    if (now == null || now == request) {
                        call.accept(core);
                    }
                });
    }

    // ---- events ----

    void lost(String reason) {
        List<Runnable> actions;
        lock.lock();
        try {
            if (loss != null) {
                return;
            }
            loss = reason;
            actions = List.copyOf(onLost);
            onLost.clear();
        } finally {
            lock.unlock();
        }
        context.observe(observer -> observer.lost(keys, token, reason));
        end(new LostException(reason));
        actions.forEach(Runnable::run);
    }

    /** P-REL-6: the first answer; a refusal for a moment is no error of the call. */
    void releasing(Problem problem) {
        ServerError error = new ServerError(problem.text());
        if (Codes.isMomentary(error) || Codes.isUnwritable(error)) {
            released.complete(null);
        } else {
            released.completeExceptionally(TetherException.of(problem));
        }
    }

    void released() {
        isReleased = true;
        context.observe(observer -> observer.released(keys, token));
        end(null);
    }

    private void end(TetherException error) {
        complete(extending, error == null ? new LostException("released") : error);
        complete(checking, error == null ? new LostException("released") : error);
        context.notAtClose(clientClosed);
        if (error == null) {
            released.complete(null);
        } else if (isReleased) {
            released.completeExceptionally(error);
        }
    }

    void extended(Problem problem) {
        answer(extending, problem);
    }

    void checked(Problem problem) {
        answer(checking, problem);
    }

    /** The answer to the first of those that are under way. */
    private void answer(List<CompletableFuture<Void>> open, Problem problem) {
        List<CompletableFuture<Void>> first = new ArrayList<>();
        lock.lock();
        try {
            if (!open.isEmpty()) {
                first.add(open.remove(0));
            }
        } finally {
            lock.unlock();
        }
        complete(first, problem == null ? null : exception(problem));
    }

    private TetherException exception(Problem problem) {
        String known = loss == null && isReleased ? "released" : loss;
        boolean isLoss = problem.failure() == Failure.LOST && known != null;
        return isLoss ? new LostException(known) : TetherException.of(problem);
    }

    private void complete(List<CompletableFuture<Void>> open, TetherException error) {
        List<CompletableFuture<Void>> all;
        lock.lock();
        try {
            all = List.copyOf(open);
            open.clear();
        } finally {
            lock.unlock();
        }
        for (CompletableFuture<Void> each : all) {
            if (error == null) {
                each.complete(null);
            } else {
                each.completeExceptionally(error);
            }
        }
    }

    @Override
    public String toString() {
        String state =
                isReleased ? "released" : loss().map(reason -> "lost: " + reason).orElse("held");
        return "Hold" + keys + "(" + token + ", " + state + ")";
    }
}
