package tether.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A request for one grant, from the call to the end of its hold. */
final class Ticket implements RequestListener {
    /** Completed by the loop's thread: whoever waits for it does so without dependents. */
    final CompletableFuture<Hold> granted = new CompletableFuture<>();

    private final ClientContext context;
    private final Cluster cluster;
    private final Ask ask;
    private final long began = System.nanoTime();

    /** Where it asks now. */
    private Node node;

    private int redirections;
    private boolean hasAsked;
    private volatile Hold hold;

    Ticket(ClientContext context, Cluster cluster, Ask ask) {
        this.context = context;
        this.cluster = cluster;
        this.ask = ask;
    }

    void begin() {
        cluster.loop.post(
                () -> {
                    node = cluster.node(ask.keys);
                    node.act(core -> core.acquire(this, ask));
                });
    }

    /** Whether this is what was granted. */
    boolean isGranted(Hold given) {
        return given != null && given == hold;
    }

    /** P-ACQ-10: leaves neither a place nor a hold. */
    void giveUp() {
        cluster.loop.post(() -> node.act(core -> core.giveUp(this)));
    }

    /** P-CLUSTER-3, P-CLUSTER-4: whether it goes on at another node. */
    private boolean follows(Problem problem) {
        Cluster.Redirection to = cluster.redirection(problem, node);
        double left = ask.wait == null ? 1 : ask.wait - (System.nanoTime() - began) / 1e6;
        boolean isTooMuch = redirections == Cluster.MOST_REDIRECTIONS || ask.waits() && left <= 0;
        if (to == null || isTooMuch || to.isAsk() && hasAsked) {
            return false;
        }
        redirections++;
        hasAsked |= to.isAsk();
        Ask again = ask.copy();
        again.isAsking = to.isAsk();
        if (ask.wait != null && ask.waits()) {
            again.wait = left;
        }
        node = to.node();
        node.act(core -> core.acquire(this, again));
        return true;
    }

    private List<String> keys() {
        return ask.keys.stream().map(Resp::textOf).toList();
    }

    @Override
    public void granted(Request request, long token, String key) {
        Hold held = new Hold(context, node, this, request, token, key);
        hold = held;
        Duration waited = Duration.ofNanos(System.nanoTime() - began);
        context.observe(observer -> observer.granted(held.keys(), token, waited));
        granted.complete(held);
    }

    @Override
    public void refused(Problem problem) {
        if (follows(problem)) {
            return;
        }
        context.observe(observer -> observer.refused(keys(), problem.failure()));
        granted.completeExceptionally(TetherException.of(problem));
    }

    @Override
    public void lost(String reason) {
        if (hold != null) {
            hold.lost(reason);
        }
    }

    @Override
    public void releasing(Problem problem) {
        if (hold != null) {
            hold.releasing(problem);
        }
    }

    @Override
    public void released() {
        if (hold != null) {
            hold.released();
        }
    }

    @Override
    public void over() {
        granted.cancel(false);
        released();
    }

    @Override
    public void extended() {
        hold.extended(null);
    }

    @Override
    public void notExtended(Problem problem) {
        hold.extended(problem);
    }

    @Override
    public void checked(Problem problem) {
        hold.checked(problem);
    }
}
