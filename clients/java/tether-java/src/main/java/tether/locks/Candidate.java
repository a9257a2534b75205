package tether.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * A candidate of an election. It stands again after each term, at the end of the queue, until it is
 * closed. A term is a {@link Hold}: {@link Hold#close} resigns, and the loss of the hold ends the
 * term.
 */
public final class Candidate implements AutoCloseable {
    private final ClientContext context;
    private final Cluster cluster;
    private final Ask ask;
    private final List<String> keys;
    private final Terms terms = new Terms();
    private final ReentrantLock lock = new ReentrantLock();
    private final Runnable clientClosed = this::end;

    /** Completed by the term that is going on; otherwise the next one is waited for. */
    private CompletableFuture<Hold> next = new CompletableFuture<>();

    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private volatile Hold term;
    private volatile boolean isClosed;
    private volatile Consumer<? super Hold> onElected;

    /** Which action was called for which term. */
    private Called called = new Called(null, null);

    /** Where it stands. */
    private Node node;

    Candidate(ClientContext context, Cluster cluster, Ask ask) {
        this.context = context;
        this.cluster = cluster;
        this.ask = ask;
        keys = ask.keys.stream().map(Resp::textOf).toList();
        context.atClose(clientClosed);
        cluster.loop.post(() -> stand(cluster.node(ask.keys), ask));
    }

    private void stand(Node at, Ask asked) {
        node = at;
        node.act(core -> core.acquire(terms, asked));
    }

    /**
     * Waits until this candidate leads.
     *
     * @return the term that is going on
     * @throws InterruptedException the thread was interrupted; the candidate stands on
     * @throws TetherException the server refuses the candidate, or it was closed
     */
    public Hold awaitTerm() throws InterruptedException {
        while (true) {
            CompletableFuture<Hold> stage = stage();
            Hold hold = Futures.get(stage);
            if (hold.isHeld()) {
                return hold;
            }
            forget(stage);
        }
    }

    /**
     * The term that is going on, or the next one.
     *
     * @return completes on the client's executor when this candidate leads
     */
    public CompletionStage<Hold> nextTerm() {
        return context.outside(stage());
    }

    /**
     * Calls this at the begin of each term, on the client's executor; at once if one is going on.
     *
     * @param action is given the term
     */
    public void onElected(Consumer<? super Hold> action) {
        onElected = action;
        callElected();
    }

    /** Once for each term and action, whichever of the two comes first. */
    private void callElected() {
        Called now = new Called(term, onElected);
        if (now.term == null || now.action == null) {
            return;
        }
        lock.lock();
        try {
            if (now.equals(called)) {
                return;
            }
            called = now;
        } finally {
            lock.unlock();
        }
        context.executor.execute(() -> now.action.accept(now.term));
    }

    /**
     * Whether this candidate leads at this moment.
     *
     * @return as {@link Hold#isHeld} of the term says
     */
    public boolean isLeading() {
        Hold hold = term;
        return hold != null && hold.isHeld();
    }

    /**
     * The end: it stands no more.
     *
     * @return completes when it is closed; with a {@link TetherException} if the server refuses it
     *     for good or the client is closed
     */
    public CompletionStage<Void> ended() {
        return context.outside(ended);
    }

    /** Resigns if it leads, which is waited for as by {@link Hold#close}, and stands no more. */
    @Override
    public void close() {
        isClosed = true;
        ended.complete(null);
        Hold hold = term;
        // First, since after a release it would stand again.
        cluster.loop.post(
                () -> {
                    node.act(core -> core.giveUp(terms));
                    end();
                });
        if (hold != null && hold.release()) {
            hold.awaitReleased();
        }
    }

    private CompletableFuture<Hold> stage() {
        lock.lock();
        try {
            return next;
        } finally {
            lock.unlock();
        }
    }

    /** It was closed, or the client was. */
    private void end() {
        isClosed = true;
        end(Problem.CLOSED);
    }

    /** It stands no more. */
    private void end(Problem problem) {
        context.notAtClose(clientClosed);
        stage().completeExceptionally(TetherException.of(problem));
        ended.completeExceptionally(TetherException.of(problem));
    }

    /** The term that completed this is over. */
    private void forget(CompletableFuture<Hold> stage) {
        lock.lock();
        try {
            if (next == stage) {
                next = new CompletableFuture<>();
                if (isClosed) {
                    next.completeExceptionally(TetherException.of(Problem.CLOSED));
                }
            }
        } finally {
            lock.unlock();
        }
    }

    private record Called(Hold term, Consumer<? super Hold> action) {}

    private final class Terms implements RequestListener {
        private long began = System.nanoTime();
        private final Moves moves = new Moves();

        /** What the term that is going on has completed. */
        private CompletableFuture<Hold> stage;

        @Override
        public void granted(Request request, long token, String key) {
            Hold hold = new Hold(context, node, this, request, token, key);
            term = hold;
            Duration waited = Duration.ofNanos(System.nanoTime() - began);
            context.observe(observer -> observer.granted(keys, token, waited));
            stage = stage();
            stage.complete(hold);
            callElected();
        }

        @Override
        public void refused(Problem problem) {
            Cluster.Redirection to = cluster.redirection(problem, node);
            if (moves.follow(to)) {
                Ask asked = ask.copy();
                asked.isAsking = to.isAsk();
                stand(to.node(), asked);
                return;
            }
            context.observe(observer -> observer.refused(keys, problem.failure()));
            end(problem);
        }

        @Override
        public void lost(String reason) {
            Hold hold = ended();
            if (hold != null) {
                hold.lost(reason);
            }
        }

        @Override
        public void releasing(Problem problem) {
            if (term != null) {
                term.releasing(problem);
            }
        }

        @Override
        public void released() {
            Hold hold = ended();
            if (hold != null) {
                hold.released();
            }
        }

        @Override
        public void over() {
            // Whoever waits was told when it was closed.
        }

        @Override
        public void extended() {
            term.extended(null);
        }

        @Override
        public void notExtended(Problem problem) {
            if (term != null) {
                term.extended(problem);
            }
        }

        @Override
        public void checked(Problem problem) {
            if (term != null) {
                term.checked(problem);
            }
        }

        /** The term that ends now. */
        private Hold ended() {
            Hold hold = term;
            term = null;
            began = System.nanoTime();
            if (hold != null) {
                forget(stage);
            }
            return hold;
        }
    }
}
