package tether.locks;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * The rules of the client protocol for one connection at a time: calls, frames and the time in;
 * commands, events and orders out. It has no socket, no clock and no thread. Its parts share this
 * object.
 *
 * <p>Not safe for use by several threads, except for {@link #check}.
 */
final class Core {
    /** What came out since the last look. */
    record Output(List<List<String>> sent, List<Event> events, List<Order> orders) {
        boolean isEmpty() {
            return sent.isEmpty() && events.isEmpty() && orders.isEmpty();
        }
    }

    final Settings settings;
    final Link link;
    final Requests requests;
    final Inventory inventory;
    final Watches watches;
    final Presences presences;
    Stamp now;
    boolean isClosed;
    private Output output = newOutput();

    Core(Stamp now, Settings settings) {
        this.now = now;
        this.settings = settings;
        link = new Link(this);
        requests = new Requests(this);
        inventory = new Inventory(this);
        watches = new Watches(this);
        presences = new Presences(this);
    }

    private static Output newOutput() {
        return new Output(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
    }

    // ---- out ----

    Output take() {
        Output taken = output;
        output = newOutput();
        return taken;
    }

    void write(List<String> words) {
        output.sent.add(words);
    }

    void tell(Event event) {
        output.events.add(event);
    }

    void order(Order order) {
        output.orders.add(order);
    }

    // ---- time ----

    double elapsed(Stamp since) {
        return elapsed(since, now);
    }

    /** P-FENCE-3: the greater of the two clocks' differences; {@code /proc/uptime} is rounded. */
    private double elapsed(Stamp since, Stamp until) {
        double mono = until.mono() - since.mono();
        double boot = until.boot() - since.boot();
        return switch (settings.bootClock()) {
            case EXACT -> Math.max(mono, boot);
            case UPTIME -> Math.max(mono, boot - 20);
            case NONE -> mono;
        };
    }

    double until(Stamp since, double length) {
        return length - elapsed(since);
    }

    double until(Request.Deadline deadline) {
        return deadline == null
                ? Double.POSITIVE_INFINITY
                : until(deadline.since(), deadline.length());
    }

    /** In how many milliseconds {@link #tick} has something to do; infinite: never. */
    double next() {
        return Math.max(0, Math.min(link.next(), requests.next()));
    }

    /** The time goes on, and all that is due is done. */
    void tick(Stamp to) {
        now = to;
        if (next() > 0) {
            return;
        }
        link.tickFence();
        requests.tick();
        link.tickConnection();
    }

    // ---- calls ----

    /** Connects, as the first request would. */
    void open() {
        link.need();
    }

    Request acquire(Object id, Ask ask) {
        return requests.acquire(id, ask);
    }

    void release(Object id) {
        requests.release(id);
    }

    void giveUp(Object id) {
        requests.giveUp(id);
    }

    void extend(Object id, double lease) {
        requests.extend(id, lease, null);
    }

    /**
     * Why a hold within this fence is lost, or null if it is not, at this moment (P-FENCE-4). It
     * asks nobody and changes nothing; any thread may call it.
     */
    String check(Request request, Link.Fence fence, Stamp at) {
        if (fence.endedBy() != null) {
            return fence.endedBy();
        }
        if (elapsed(fence.vouched(), at) >= fence.length()) {
            return "silence";
        }
        for (Request.Deadline lease : request.leases) {
            if (elapsed(lease.since(), at) >= lease.length()) {
                return "lease";
            }
        }
        return null;
    }

    /** P-CLOSE-1, P-CLOSE-2. */
    void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        List<List<String>> parting = requests.closed();
        watches.end(Problem.CLOSED);
        presences.end(Problem.CLOSED);
        link.close(parting);
    }

    /**
     * A slot that the server is to have: that of a hold, since its session is where the slot is
     * (P-CLUSTER-6), else of anything that is wanted of it, or {@link Slot#NONE}.
     */
    int slot() {
        return Stream.of(requests.keys(), watches.keys(), presences.prefixes())
                .flatMap(Function.identity())
                .findFirst()
                .map(Slot::of)
                .orElse(Slot.NONE);
    }

    /** Whether a connection is wanted without a further call (P-CONN-4). */
    boolean isWanted() {
        return !requests.isEmpty() || !watches.isEmpty() || !presences.isEmpty();
    }
}
